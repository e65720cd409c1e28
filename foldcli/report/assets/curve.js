// pLDDT along the chain, all models, the one shown in front.

const curvePlot = new Plot('curve', [44, 8, 18, 44], drawCurve);
let curveCursor = null, curveAnchor = null;

function drawCurve(plot) {
  const { context, left, top, width, height } = plot;
  const x = (residue) => left + ((residue + 0.5) / size) * width, y = (plddt) => top + (1 - plddt / 100) * height;
  let above = 100;
  data.palettes.confidence.forEach(([lowest, , hex]) => {
    context.fillStyle = `rgba(${rgb(hex).join()}, 0.16)`;
    context.fillRect(left, y(above), width, y(lowest) - y(above));
    above = lowest;
  });
  context.fillStyle = themed('mark');
  for (const residue of state.selected) context.fillRect(left + (residue / size) * width, top + height - 6, width / size + 0.5, 6);
  context.lineJoin = 'round';
  const line = (model) => {
    context.beginPath();
    model.plddt.forEach((plddt, i) => (i ? context.lineTo(x(i), y(plddt)) : context.moveTo(x(i), y(plddt))));
    if (size === 1) context.arc(x(0), y(model.plddt[0]), 2, 0, 2 * Math.PI);
    context.stroke();
  };
  context.lineWidth = 1;
  context.strokeStyle = themed('soft');
  context.globalAlpha = 0.55;
  data.models.forEach((model, i) => { if (i !== state.model) line(model); });
  context.globalAlpha = 1;
  context.lineWidth = 2.2;
  context.strokeStyle = themed('ink');
  line(current());
  for (const residue of new Set(state.pointed)) {
    context.lineWidth = 1;
    context.strokeStyle = themed('mark');
    context.beginPath();
    context.moveTo(x(residue), top);
    context.lineTo(x(residue), top + height);
    context.stroke();
    context.beginPath();
    context.arc(x(residue), y(current().plddt[residue]), 4, 0, 2 * Math.PI);
    context.fillStyle = themed('mark');
    context.fill();
  }
  plot.frame();
  plot.residueTicks('residue');
  for (const plddt of [0, 50, 70, 90, 100]) plot.leftTick(y(plddt), plddt);
  plot.leftTitle('pLDDT');
}

function tellCurve() {
  const residue = state.pointed[0];
  curvePlot.said.textContent = residue === undefined ? '' : `${residueName(residue)}: ` + (
    data.models.length > 6 ? `pLDDT ${current().plddt[residue].toFixed(1)}`
      : data.models.map((model) => `rank ${model.rank} ${model.plddt[residue].toFixed(1)}`).join(', '));
}

curvePlot.followPointer(
  (place) => update({ pointed: place === null ? [] : [residueAt(place[0])] }),
  (from, to, ended) => {
    if (to) update({ selected: rangeSet([residueAt(from[0]), residueAt(to[0])]) });
    else if (ended) update({ selected: new Set() });
  },
);
curvePlot.canvas.addEventListener('keydown', (event) => {
  const step = arrow(event);
  if (event.key === 'Escape') {
    curveAnchor = null;
    update({ selected: new Set() });
  } else if (step && step[0]) {
    const before = curveCursor ?? (step[0] > 0 ? -1 : size);
    curveCursor = Math.max(0, Math.min(size - 1, before + step[0]));
    curveAnchor = event.shiftKey ? curveAnchor ?? Math.max(0, Math.min(size - 1, before)) : null;
    update({ pointed: [curveCursor], ...(event.shiftKey ? { selected: rangeSet([curveAnchor, curveCursor]) } : {}) });
  } else return;
  event.preventDefault();
});
curvePlot.canvas.addEventListener('blur', () => { curveAnchor = null; update({ pointed: [] }); });
onChange(() => {
  curvePlot.redraw();
  tellCurve();
});
