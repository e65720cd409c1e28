// The structure: the trace at once, and Mol*'s cartoon as soon as it is loaded; colours, buttons and keys.

const residueColours = {
  confidence: (residue, model) => confidenceColours[confidenceClass(model.plddt[residue])],
  // light to dark along the chain, readable without colour vision
  position: (residue) => interpolate([[253, 231, 37], [94, 201, 98], [33, 145, 140], [59, 82, 139], [68, 1, 84]], (residueNumber(residue) - 1) / Math.max(1, chainOf(residue).length - 1)),
  chain: (residue) => chainColours[chainIndices[residue] % chainColours.length],
  secondary: (residue, model) => rgb(themeColour(`structure-${{ H: 'helix', G: 'helix', E: 'strand' }[model.secondary[residue]] ?? 'coil'}`)),
};
let colourMode = 'confidence', dimmed = rgb(themeColour('dim')), structure = null;

// residues outside the selection are dimmed
function residueColour(residue, model) {
  return state.selected.size === 0 || state.selected.has(residue) ? residueColours[colourMode](residue, model) : dimmed;
}

function recolour() {
  dimmed = rgb(themeColour('dim'));
  structure.recolour([...state.selected]);
}

const hover = (residue) => update({ hovered: residue === null ? [] : [residue] });

function pick(residue) {
  if (residue === null) return;
  const selected = new Set(state.selected);
  if (!selected.delete(residue)) selected.add(residue);
  update({ selected });
}

// a script element, because pages from disk must not fetch
function loadScript(source) {
  return new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement('script'), { src: source, onload: resolve });
    script.onerror = () => reject(new Error(`${decodeURIComponent(source)} is not there. It belongs to the folder of results that this page comes from`));
    document.head.append(script);
  });
}

async function startCartoon() {
  const source = byId('viewer').dataset.script;
  if (!source) throw new Error(byId('viewer').dataset.missing);
  if (!document.createElement('canvas').getContext('webgl2')) throw new Error('this browser has no WebGL');
  // the format that Mol* gets has one column for the chain
  if (chains.some(({ name }) => name.length > 1)) throw new Error('it has more chains than the PDB format can name');
  await loadScript(source);
  const box = byId('cartoon');
  box.hidden = false;
  try {
    const cartoon = await Cartoon.create(box, residueColour, hover, pick);
    await cartoon.show(currentModel());
    byId('tube').hidden = true;
    structure.spin(false);
    structure = cartoon;
  } catch (error) {
    box.hidden = true;
    throw error;
  }
  byId('spin').setAttribute('aria-pressed', 'false');
  byId('viewer').dataset.drawn = 'cartoon';
  recolour();
}

if (present.length) {
  const canvas = byId('canvas'), spinButton = byId('spin');
  const spin = (on) => {
    structure.spin(on);
    spinButton.setAttribute('aria-pressed', String(on));
  };
  // the viewer in use, for the console of the browser
  Object.defineProperty(byId('viewer'), 'structure', { get: () => structure });
  structure = new Tube(byId('tube'), residueColour, hover, pick);
  byId('viewer').dataset.drawn = 'tube';
  startCartoon().catch((error) => {
    byId('structure-problem').textContent = `A simple trace is drawn instead of a cartoon: ${error.message}.`;
  }).finally(() => { byId('viewer').dataset.ready = ''; });
  onChange((changed) => {
    if (changed.has('model')) structure.show(currentModel());
    if (changed.has('selected') || changed.has('model')) recolour();
    byId('focus').disabled = state.selected.size === 0;
    structure.highlight([...new Set(state.hovered)]);
    const residues = [...new Set(state.hovered)].map((i) => `${residueName(i)}, ${structureNames[currentModel().secondary[i]]}, ${data.confidence} ${currentModel().plddt[i].toFixed(1)}`);
    byId('structure-readout').textContent = residues.join(' · ');
  });
  canvas.addEventListener('keydown', (event) => {
    const step = arrow(event), small = Math.PI / 18;
    if (step) step[0] ? structure.rotate('y', step[0] * small) : structure.rotate('x', step[1] * small);
    else if (event.key === '+' || event.key === '=') structure.zoom(1.2);
    else if (event.key === '-') structure.zoom(1 / 1.2);
    else if (event.key === '0') structure.reset();
    else return;
    event.preventDefault();
  });
  canvas.addEventListener('pointerdown', () => { canvas.focus({ preventScroll: true }); spin(false); });
  // the wheel scrolls the page until the structure has been clicked
  canvas.addEventListener('wheel', (event) => {
    if (document.activeElement !== canvas) event.stopPropagation();
  }, { capture: true });
  canvas.addEventListener('pointerleave', () => hover(null));
  byId('save-pdb').disabled = chains.some(({ name }) => name.length > 1);
  for (const [i, { name }] of severalChains ? chains.entries() : []) {
    const entry = document.createElement('li'), swatch = document.createElement('span');
    swatch.className = 'swatch';
    swatch.style.background = data.palettes.chains[i % chainColours.length];
    entry.append(swatch, `chain ${name}`);
    byId('chain-legend').append(entry);
  }
  byId('colour-mode').addEventListener('change', (event) => {
    colourMode = event.target.value;
    for (const legend of document.querySelectorAll('#structure [data-legend]')) legend.hidden = legend.dataset.legend !== colourMode;
    recolour();
  });
  byId('zoom-in').addEventListener('click', () => structure.zoom(1.25));
  byId('zoom-out').addEventListener('click', () => structure.zoom(1 / 1.25));
  spinButton.addEventListener('click', () => spin(spinButton.getAttribute('aria-pressed') !== 'true'));
  byId('reset').addEventListener('click', () => { spin(false); structure.reset(); });
  byId('focus').addEventListener('click', () => structure.focus([...state.selected]));
  byId('save-picture').addEventListener('click', async () => {
    download(await structure.picture(), `${data.name}_rank_${currentModel().rank}.png`);
  });
  byId('save-pdb').addEventListener('click', () => {
    const url = URL.createObjectURL(new Blob([pdbText(currentModel())], { type: 'chemical/x-pdb' }));
    download(url, `${data.name}_rank_${currentModel().rank}.pdb`);
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolour);
}

function download(url, name) {
  Object.assign(document.createElement('a'), { href: url, download: name }).click();
}
