// The heat map of the predicted aligned error: values under the pointer, and selection of residues.

const paePlot = byId('pae-canvas') && data.models[0].pae && new Plot('pae', [52, 8, 18, 44], drawPae);
const paeImages = new Map();
// selected box, [[column, row], [column, row]] in residue indices; cursor and box corner set by the keyboard
let paeBox = null, paeCursor = null, paeCorner = null;

// PAE in Å of residue index `scored` when aligned on residue index `aligned`
function paeAt(scored, aligned) {
  const { cells, side, block } = currentModel().pae;
  return cells[Math.floor(aligned / block) * side + Math.floor(scored / block)] * data.paeStep;
}

// a canvas with one pixel per cell, created when a model is first shown
function paeImage() {
  if (!paeImages.has(state.model)) {
    const { cells, side } = currentModel().pae;
    const picture = Object.assign(document.createElement('canvas'), { width: side, height: side });
    const image = picture.getContext('2d').createImageData(side, side);
    const colours = Array.from({ length: 256 }, (_, value) => interpolate(paeStops, (value * data.paeStep) / data.palettes.maxPae));
    cells.forEach((value, i) => image.data.set([...colours[value], 255], i * 4));
    picture.getContext('2d').putImageData(image, 0, 0);
    paeImages.set(state.model, picture);
  }
  return paeImages.get(state.model);
}

function drawPae(plot) {
  const { context, left, top, width, height } = plot, { side, block } = currentModel().pae;
  // the last cell may cover fewer residues than the others
  const scale = (side * block) / size;
  context.imageSmoothingEnabled = false;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.drawImage(paeImage(), left, top, width * scale, height * scale);
  plot.chainBorders(true);
  const across = (residue) => left + (residue / size) * width, down = (residue) => top + (residue / size) * height;
  if (paeBox) {
    const [[x1, y1], [x2, y2]] = paeBox;
    const rectangle = [across(Math.min(x1, x2)), down(Math.min(y1, y2)), ((Math.abs(x2 - x1) + 1) / size) * width, ((Math.abs(y2 - y1) + 1) / size) * height];
    strokeTwice(context, () => context.strokeRect(...rectangle));
  } else if (state.selected.size) {
    context.fillStyle = themeColour('mark');
    for (const residue of state.selected) {
      context.fillRect(across(residue), top + height - 4, width / size + 0.5, 4);
      context.fillRect(left, down(residue), 4, height / size + 0.5);
    }
  }
  const [scored, aligned] = state.hovered;
  if (scored !== undefined) {
    strokeTwice(context, () => {
      context.beginPath();
      context.moveTo(across(scored + 0.5), top);
      context.lineTo(across(scored + 0.5), top + height);
      context.moveTo(left, down((aligned ?? scored) + 0.5));
      context.lineTo(left + width, down((aligned ?? scored) + 0.5));
      context.stroke();
    }, 1);
  }
  context.restore();
  plot.frame();
  plot.residueTicks('scored residue');
  for (const [residue, label] of residueLabels(height / 45)) plot.leftTick(down(residue + 0.5), label);
  plot.leftTitle('aligned residue');
}

// stroke with an outline, visible on dark and on light cells
function strokeTwice(context, stroke, width = 2) {
  for (const [colour, lineWidth] of [['#ffffff', width + 2], ['#b8300b', width]]) {
    context.strokeStyle = colour;
    context.lineWidth = lineWidth;
    stroke();
  }
}

function updatePaeReadout() {
  const [scored, aligned] = state.hovered;
  if (scored === undefined || aligned === undefined) {
    paePlot.readout.textContent = '';
    return;
  }
  const { block } = currentModel().pae;
  const resolution = block > 1 ? ` (mean of ${block} × ${block} residues)` : '';
  paePlot.readout.textContent = `PAE ${paeAt(scored, aligned).toFixed(1)} Å at ${residueName(scored)} when aligned on ${residueName(aligned)}${resolution}`;
}

function selectBox(box) {
  paeBox = box;
  const [[x1, y1], [x2, y2]] = box;
  update({ selected: rangeSet([x1, x2], [y1, y2]) });
}

if (paePlot) {
  const cell = (position) => position.map(residueAt);
  paePlot.followPointer(
    (position) => update({ hovered: position === null ? [] : cell(position) }),
    (start, end, finished) => {
      if (end) selectBox([cell(start), cell(end)]);
      else if (finished) update({ selected: new Set() });
    },
  );
  paePlot.canvas.addEventListener('keydown', (event) => {
    const step = arrow(event);
    if (step) {
      const [x, y] = paeCursor ?? [-step[0], -step[1]], distance = (event.shiftKey ? 10 : 1) * currentModel().pae.block;
      paeCursor = [x + step[0] * distance, y + step[1] * distance].map((each) => Math.max(0, Math.min(size - 1, each)));
      if (paeCorner) selectBox([paeCorner, paeCursor]);
      update({ hovered: paeCursor });
    } else if (event.key === 'Enter' || event.key === ' ') {
      paeCursor ??= [0, 0];
      paeCorner = paeCorner ? null : paeCursor;
      if (paeCorner) selectBox([paeCorner, paeCursor]);
      update({ hovered: paeCursor });
    } else if (event.key === 'Escape') {
      paeCorner = null;
      update({ selected: new Set() });
    } else return;
    event.preventDefault();
  });
  paePlot.canvas.addEventListener('blur', () => { paeCorner = null; update({ hovered: [] }); });
  onChange((changed) => {
    // remove the box when the selection changes
    if (changed.has('selected') && paeBox) {
      const same = rangeSet([paeBox[0][0], paeBox[1][0]], [paeBox[0][1], paeBox[1][1]]);
      if (same.size !== state.selected.size || [...same].some((i) => !state.selected.has(i))) paeBox = null;
    }
    paePlot.redraw();
    updatePaeReadout();
  });
  drawScale('pae-scale', paeStops);
}
