// The alignment from afar: which rows cover which positions, how like the query, and how many there are.

const cover = data.coverage;
let coverPicture = null, coverPlot = null, covered = null, coverCursor = null;

function startCoverage() {
  const identity = unpack(cover.identity, Uint8Array), occupancy = unpack(cover.occupancy, Uint8Array);
  covered = unpack(cover.covered, Uint32Array);
  coverPicture = Object.assign(document.createElement('canvas'), { width: cover.columns, height: cover.rows });
  const image = coverPicture.getContext('2d').createImageData(cover.columns, cover.rows);
  for (let row = 0, i = 0; row < cover.rows; row++) {
    const colour = between(identityStops, identity[row] / 255);
    for (let column = 0; column < cover.columns; column++, i++) image.data.set([...colour, occupancy[i]], i * 4);
  }
  coverPicture.getContext('2d').putImageData(image, 0, 0);
  coverPlot = new Plot('coverage', [60, 8, 18, 44], drawCoverage);
  coverPlot.followPointer((place) => {
    update({ pointed: place === null ? [] : [residueAt(place[0])] });
    tellCoverage(place && place[1]);
  });
  coverPlot.canvas.addEventListener('keydown', (event) => {
    const step = arrow(event);
    if (!step || !step[0]) return;
    coverCursor = Math.max(0, Math.min(size - 1, (coverCursor ?? -1) + step[0]));
    update({ pointed: [coverCursor] });
    event.preventDefault();
  });
  coverPlot.canvas.addEventListener('blur', () => update({ pointed: [] }));
  onChange(() => { coverPlot.redraw(); tellCoverage(null); });
  drawScale('identity-scale', identityStops);

  function tellCoverage(down) {
    const residue = state.pointed[0];
    if (residue === undefined) {
      coverPlot.said.textContent = '';
      return;
    }
    const text = `${residueName(residue)}: ${covered[residue].toLocaleString('en')} of ${cover.depth.toLocaleString('en')} rows`;
    if (down === null) coverPlot.row = coverPlot.row ?? '';
    else coverPlot.row = `; rows here have ${Math.round((100 * identity[Math.min(cover.rows - 1, Math.floor(down * cover.rows))]) / 255)} % identity`;
    coverPlot.said.textContent = text + coverPlot.row;
  }
}

function drawCoverage(plot) {
  const { context, left, top, width, height } = plot;
  context.imageSmoothingEnabled = false;
  context.drawImage(coverPicture, left, top, width, height);
  const x = (residue) => left + ((residue + 0.5) / size) * width, y = (rows) => top + (1 - rows / cover.depth) * height;
  for (const [colour, wide] of [[themed('plot'), 4], [themed('ink'), 2]]) {
    context.strokeStyle = colour;
    context.lineWidth = wide;
    context.beginPath();
    covered.forEach((rows, i) => (i ? context.lineTo(x(i), y(rows)) : context.moveTo(x(i), y(rows))));
    context.stroke();
  }
  if (state.pointed.length) {
    context.strokeStyle = themed('mark');
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x(state.pointed[0]), top);
    context.lineTo(x(state.pointed[0]), top + height);
    context.stroke();
  }
  plot.frame();
  plot.residueTicks('residue');
  for (const rows of new Set([0, ...ticks(cover.depth, height / 60).filter((each) => each > 1), cover.depth])) {
    if (rows === cover.depth || rows < cover.depth * 0.93) plot.leftTick(y(rows), rows.toLocaleString('en'));
  }
  plot.leftTitle('rows');
}

if (cover) startCoverage();
