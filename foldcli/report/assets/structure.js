// The structure: drawn by py2Dmol, with this page's own colours, selection, keys and buttons.

const VIEWER = 'structure';
let structure = null;

function startStructure() {
  const box = byId('viewer');
  if (!box || typeof initializePy2DmolViewer !== 'function' || present.length === 0) return null;
  const side = box.clientWidth || 320;
  window.canvasDPR = Math.min(window.devicePixelRatio || 1, 2);
  window.py2dmol_customColors = { confidence: colourOf(confidenceAt), position: colourOf(positionAt) };
  window.py2dmol_configs = {
    [VIEWER]: {
      viewer_id: VIEWER,
      display: { size: [side, side], box: false, controls: false },
      rendering: { shadow: true, outline: 'full', width: 3, detect_cyclic: false },
      color: { mode: 'confidence' },
    },
  };
  window.py2dmol_staticData = { [VIEWER]: [{ name: data.name, frames: data.models.map(frame) }] };
  // the viewer calls this after drawing
  window.SEQ = { drawHighlights };
  initializePy2DmolViewer(box, VIEWER);
  byId('canvasContainer').style.width = byId('canvasContainer').style.height = '100%';
  return window.py2dmol_viewers[VIEWER].renderer;
}

function frame(model) {
  const steps = unpack(model.ca, Int16Array), coords = [];
  for (let i = 0; i < steps.length; i += 3) {
    coords.push([steps[i] * data.step, steps[i + 1] * data.step, steps[i + 2] * data.step]);
  }
  return {
    coords,
    plddts: Array.from(present, (residue) => model.plddt[residue]),
    chains: Array(coords.length).fill('A'),
    position_types: Array(coords.length).fill('P'),
    residue_numbers: Array.from(present, (residue) => residue + 1),
  };
}

const confidenceAt = (residue) => confidenceColours[confidenceClass(currentModel().plddt[residue])];
// light to dark along the chain, readable without colour vision
const positionAt = (residue) => interpolate([[253, 231, 37], [94, 201, 98], [33, 145, 140], [59, 82, 139], [68, 1, 84]], residue / Math.max(1, size - 1));

// residues outside the selection are dimmed
function colourOf(colourAt) {
  return (index) => {
    const residue = present[index];
    const shown = state.selected.size === 0 || state.selected.has(residue);
    const [r, g, b] = shown ? colourAt(residue) : dimmed;
    return { r, g, b };
  };
}

function drawHighlights() {
  if (!structure) return;
  const { ctx } = structure;
  ctx.lineWidth = 2.5;
  ctx.strokeStyle = themeColour('ink');
  for (const { x, y, radius } of structure.getHighlightCoordinates()) {
    ctx.beginPath();
    ctx.arc(x, y, radius + 5, 0, 2 * Math.PI);
    ctx.stroke();
  }
}

function rotate(axis, angle) {
  const c = Math.cos(angle), s = Math.sin(angle);
  const step = axis === 'x' ? [[1, 0, 0], [0, c, -s], [0, s, c]] : [[c, 0, s], [0, 1, 0], [-s, 0, c]];
  const old = structure.viewerState.rotation;
  structure.viewerState.rotation = step.map((row) => [0, 1, 2].map((j) => row[0] * old[0][j] + row[1] * old[1][j] + row[2] * old[2][j]));
  structure.render();
}

function zoom(factor) {
  structure.viewerState.zoom = Math.max(0.1, Math.min(5, structure.viewerState.zoom * factor));
  structure.render();
}

function resetView() {
  structure.viewerState.rotation = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
  structure.viewerState.zoom = 1;
  spin(false);
  structure.render();
}

function spin(on) {
  structure.autoRotate = on;
  structure.spinVelocityX = structure.spinVelocityY = 0;
  byId('spin').setAttribute('aria-pressed', String(on));
}

function recolour() {
  dimmed = rgb(themeColour('dim'));
  structure.colorsNeedUpdate = true;
  structure.render();
}

let dimmed = rgb(themeColour('dim'));
structure = startStructure();

if (structure) {
  const canvas = byId('canvas');
  onChange((changed) => {
    if (changed.has('model')) structure.setFrame(state.model);
    structure.highlightedAtoms = new Set([...new Set(state.hovered)].map((residue) => present.indexOf(residue)).filter((i) => i >= 0));
    if (changed.has('selected')) recolour();
    else structure.render();
    const residues = [...new Set(state.hovered)].map((i) => `${residueName(i)}, pLDDT ${currentModel().plddt[i].toFixed(1)}`);
    byId('structure-readout').textContent = residues.join(' · ');
  });
  canvas.addEventListener('keydown', (event) => {
    const step = arrow(event), small = Math.PI / 18;
    if (step) step[0] ? rotate('y', step[0] * small) : rotate('x', step[1] * small);
    else if (event.key === '+' || event.key === '=') zoom(1.2);
    else if (event.key === '-') zoom(1 / 1.2);
    else if (event.key === '0') resetView();
    else return;
    event.preventDefault();
  });
  canvas.addEventListener('pointerdown', () => { canvas.focus({ preventScroll: true }); spin(false); });
  // the wheel scrolls the page until the structure has been clicked
  byId('canvasContainer').addEventListener('wheel', (event) => {
    if (document.activeElement !== canvas) event.stopPropagation();
  }, { capture: true });
  canvas.addEventListener('mousemove', (event) => {
    if (event.buttons) return;
    const residue = nearest(event.offsetX, event.offsetY);
    update({ hovered: residue === null ? [] : [residue] });
  });
  canvas.addEventListener('mouseleave', () => update({ hovered: [] }));
  byId('colour-mode').addEventListener('change', (event) => { structure.colorMode = event.target.value; recolour(); });
  byId('zoom-in').addEventListener('click', () => zoom(1.25));
  byId('zoom-out').addEventListener('click', () => zoom(1 / 1.25));
  byId('spin').setAttribute('aria-pressed', 'false');
  byId('spin').addEventListener('click', () => spin(!structure.autoRotate));
  byId('reset').addEventListener('click', resetView);
  byId('save-svg').addEventListener('click', () => structure.saveAsSvg());
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolour);
}

// index of the frontmost residue drawn near a point; null if there is none
function nearest(x, y) {
  let best = null, depth = -Infinity;
  for (let i = 0; i < present.length; i++) {
    if (structure.screenValid[i] !== structure.screenFrameId) continue;
    const close = Math.hypot(structure.screenX[i] - x, structure.screenY[i] - y) <= Math.max(7, structure.screenRadius[i] + 3);
    if (close && structure.rotatedCoords[i].z > depth) [best, depth] = [present[i], structure.rotatedCoords[i].z];
  }
  return best;
}
