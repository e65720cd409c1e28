// The alignment as an image: coverage of each row, its identity with the query, and the depth per position.

const coverage = data.coverage;
let coverageImage = null, coveragePlot = null, coveredRows = null, coverageCursor = null;

function startCoverage() {
  const identity = unpack(coverage.identity, Uint8Array), occupancy = unpack(coverage.occupancy, Uint8Array);
  coveredRows = unpack(coverage.covered, Uint32Array);
  coverageImage = Object.assign(document.createElement('canvas'), { width: coverage.columns, height: coverage.rows });
  const image = coverageImage.getContext('2d').createImageData(coverage.columns, coverage.rows);
  for (let row = 0, i = 0; row < coverage.rows; row++) {
    const colour = interpolate(identityStops, identity[row] / 255);
    for (let column = 0; column < coverage.columns; column++, i++) image.data.set([...colour, occupancy[i]], i * 4);
  }
  coverageImage.getContext('2d').putImageData(image, 0, 0);
  coveragePlot = new Plot('coverage', [60, 8, 18, 44], drawCoverage);
  coveragePlot.followPointer((position) => {
    update({ hovered: position === null ? [] : [residueAt(position[0])] });
    updateCoverageReadout(position && position[1]);
  });
  coveragePlot.canvas.addEventListener('keydown', (event) => {
    const step = arrow(event);
    if (!step || !step[0]) return;
    coverageCursor = Math.max(0, Math.min(size - 1, (coverageCursor ?? -1) + step[0]));
    update({ hovered: [coverageCursor] });
    event.preventDefault();
  });
  coveragePlot.canvas.addEventListener('blur', () => update({ hovered: [] }));
  onChange(() => { coveragePlot.redraw(); updateCoverageReadout(null); });
  drawScale('identity-scale', identityStops);

  // y: vertical position of the pointer from 0 to 1, or null
  function updateCoverageReadout(y) {
    const residue = state.hovered[0];
    if (residue === undefined) {
      coveragePlot.readout.textContent = '';
      return;
    }
    const text = `${residueName(residue)}: ${coveredRows[residue].toLocaleString('en')} of ${coverage.depth.toLocaleString('en')} rows`;
    if (y === null) coveragePlot.row = coveragePlot.row ?? '';
    else coveragePlot.row = `; rows here have ${Math.round((100 * identity[Math.min(coverage.rows - 1, Math.floor(y * coverage.rows))]) / 255)} % identity`;
    coveragePlot.readout.textContent = text + coveragePlot.row;
  }
}

function drawCoverage(plot) {
  const { context, left, top, width, height } = plot;
  context.imageSmoothingEnabled = false;
  context.drawImage(coverageImage, left, top, width, height);
  const x = (residue) => left + ((residue + 0.5) / size) * width, y = (rows) => top + (1 - rows / coverage.depth) * height;
  for (const [colour, lineWidth] of [[themeColour('plot'), 4], [themeColour('ink'), 2]]) {
    context.strokeStyle = colour;
    context.lineWidth = lineWidth;
    context.beginPath();
    coveredRows.forEach((rows, i) => (i ? context.lineTo(x(i), y(rows)) : context.moveTo(x(i), y(rows))));
    context.stroke();
  }
  plot.chainBorders();
  if (state.hovered.length) {
    context.strokeStyle = themeColour('mark');
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x(state.hovered[0]), top);
    context.lineTo(x(state.hovered[0]), top + height);
    context.stroke();
  }
  plot.frame();
  plot.residueTicks('residue');
  for (const rows of new Set([0, ...ticks(coverage.depth, height / 60).filter((each) => each > 1), coverage.depth])) {
    if (rows === coverage.depth || rows < coverage.depth * 0.93) plot.leftTick(y(rows), rows.toLocaleString('en'));
  }
  plot.leftTitle('rows');
}

if (coverage) startCoverage();
