// pLDDT along the chain, of all models; the model shown is in front.

const plddtPlot = new Plot('curve', [44, 30, 18, 44], drawPlddt);
let plddtCursor = null, plddtAnchor = null;

function drawPlddt(plot) {
  const { context, left, top, width, height } = plot;
  const x = (residue) => left + ((residue + 0.5) / size) * width, y = (plddt) => top + (1 - plddt / 100) * height;
  let upper = 100;
  data.palettes.confidence.forEach(([lower, , hex]) => {
    context.fillStyle = `rgba(${rgb(hex).join()}, 0.16)`;
    context.fillRect(left, y(upper), width, y(lower) - y(upper));
    upper = lower;
  });
  context.fillStyle = themeColour('mark');
  for (const residue of state.selected) context.fillRect(left + (residue / size) * width, top + height - 6, width / size + 0.5, 6);
  context.lineJoin = 'round';
  const line = (model) => {
    context.beginPath();
    model.plddt.forEach((plddt, i) => (i && chainOf(i) === chainOf(i - 1) ? context.lineTo(x(i), y(plddt)) : context.moveTo(x(i), y(plddt))));
    if (size === 1) context.arc(x(0), y(model.plddt[0]), 2, 0, 2 * Math.PI);
    context.stroke();
  };
  context.lineWidth = 1;
  context.strokeStyle = themeColour('soft');
  context.globalAlpha = 0.55;
  data.models.forEach((model, i) => { if (i !== state.model) line(model); });
  context.globalAlpha = 1;
  context.lineWidth = 2.2;
  context.strokeStyle = themeColour('ink');
  line(currentModel());
  for (const residue of new Set(state.hovered)) {
    context.lineWidth = 1;
    context.strokeStyle = themeColour('mark');
    context.beginPath();
    context.moveTo(x(residue), top);
    context.lineTo(x(residue), top + height);
    context.stroke();
    context.beginPath();
    context.arc(x(residue), y(currentModel().plddt[residue]), 4, 0, 2 * Math.PI);
    context.fillStyle = themeColour('mark');
    context.fill();
  }
  drawSecondary(plot, x, top - 16);
  plot.chainBorders();
  plot.frame();
  plot.residueTicks('residue');
  for (const plddt of [0, 50, 70, 90, 100]) plot.leftTick(y(plddt), plddt);
  plot.leftTitle(data.confidence);
}

// helices as waves, strands as arrows, coils as a line; y: their middle
function drawSecondary({ context, width }, x, y) {
  const half = width / size / 2, tall = 6;
  context.lineJoin = context.lineCap = 'round';
  for (const { letter, first, last } of segments(currentModel())) {
    const start = x(first) - half, end = x(last) + half;
    const kind = { H: 'helix', G: 'helix', E: 'strand' }[letter] ?? 'coil';
    context.strokeStyle = context.fillStyle = themeColour(`structure-${kind}`);
    context.beginPath();
    if (kind === 'strand') {
      const neck = Math.max(start, end - 1.5 * tall);
      context.moveTo(start, y - tall / 2);
      for (const [px, py] of [[neck, -tall / 2], [neck, -tall], [end, 0], [neck, tall], [neck, tall / 2], [start, tall / 2]]) context.lineTo(px, y + py);
      context.fill();
      continue;
    }
    context.lineWidth = kind === 'helix' ? 2.5 : 1;
    context.moveTo(start, y);
    if (kind === 'helix') {
      // a turn is 3.6 residues, but at least wide enough to be seen
      const period = Math.max(3.6 * 2 * half, 7);
      for (let at = start; at < end; at += 1) context.lineTo(at, y - tall * Math.sin((2 * Math.PI * (at - start)) / period));
    }
    context.lineTo(end, y);
    context.stroke();
  }
}

function updatePlddtReadout() {
  const residue = state.hovered[0];
  plddtPlot.readout.textContent = residue === undefined ? '' : `${residueName(residue)}, ${structureNames[currentModel().secondary[residue]]}: ` + (
    data.models.length > 6 ? `${data.confidence} ${currentModel().plddt[residue].toFixed(1)}`
      : data.models.map((model) => `rank ${model.rank} ${model.plddt[residue].toFixed(1)}`).join(', '));
}

plddtPlot.followPointer(
  (position) => update({ hovered: position === null ? [] : [residueAt(position[0])] }),
  (start, end, finished) => {
    if (end) update({ selected: rangeSet([residueAt(start[0]), residueAt(end[0])]) });
    else if (finished) update({ selected: new Set() });
  },
);
plddtPlot.canvas.addEventListener('keydown', (event) => {
  const step = arrow(event);
  if (event.key === 'Escape') {
    plddtAnchor = null;
    update({ selected: new Set() });
  } else if (step && step[0]) {
    const before = plddtCursor ?? (step[0] > 0 ? -1 : size);
    plddtCursor = Math.max(0, Math.min(size - 1, before + step[0]));
    plddtAnchor = event.shiftKey ? plddtAnchor ?? Math.max(0, Math.min(size - 1, before)) : null;
    update({ hovered: [plddtCursor], ...(event.shiftKey ? { selected: rangeSet([plddtAnchor, plddtCursor]) } : {}) });
  } else return;
  event.preventDefault();
});
plddtPlot.canvas.addEventListener('blur', () => { plddtAnchor = null; update({ hovered: [] }); });
onChange(() => {
  plddtPlot.redraw();
  updatePlddtReadout();
});
