// A canvas at the resolution of the screen, with a frame, ticks, and pointer and key events.

class Plot {
  // margins: left, top, right, bottom, in CSS pixels; draw(plot) draws the inside
  constructor(name, margins, draw) {
    this.canvas = byId(`${name}-canvas`);
    this.readout = byId(`${name}-readout`);
    this.context = this.canvas.getContext('2d');
    this.margins = margins;
    this.draw = draw;
    new ResizeObserver(() => this.redraw()).observe(byId(`${name}-box`));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.redraw());
  }

  redraw() {
    const box = this.canvas.parentElement, ratio = Math.min(window.devicePixelRatio || 1, 3);
    const width = box.clientWidth, height = box.clientHeight;
    if (!width || !height) return;
    const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== pixels[0] || this.canvas.height !== pixels[1]) {
      [this.canvas.width, this.canvas.height] = pixels;
    }
    const [left, top, right, bottom] = this.margins;
    Object.assign(this, { left, top, width: width - left - right, height: height - top - bottom });
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.context.font = '12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
    this.draw(this);
  }

  frame() {
    this.context.strokeStyle = themeColour('soft');
    this.context.lineWidth = 1;
    this.context.strokeRect(this.left - 0.5, this.top - 0.5, this.width + 1, this.height + 1);
  }

  // lines between chains; `across` for horizontal ones too
  chainBorders(across = false) {
    const { context } = this;
    // many borders would hide what is between them
    const strokes = chains.length > 10 ? [[themeColour('ink'), 0.5]] : [[themeColour('plot'), 3], [themeColour('ink'), 1]];
    for (const [colour, width] of strokes) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      for (const { first } of chains.slice(1)) {
        const x = this.left + (first / size) * this.width, y = this.top + (first / size) * this.height;
        context.moveTo(x, this.top);
        context.lineTo(x, this.top + this.height);
        if (across) {
          context.moveTo(this.left, y);
          context.lineTo(this.left + this.width, y);
        }
      }
      context.stroke();
    }
  }

  // ticks at residue numbers (from 1) below the plot; residue i of n is centred at (i − ½) / n
  residueTicks(title) {
    const { context } = this;
    context.fillStyle = themeColour('soft');
    context.textAlign = 'center';
    context.textBaseline = 'top';
    for (const [residue, label] of residueLabels(this.width / 55)) {
      const x = this.left + ((residue + 0.5) / size) * this.width;
      context.fillRect(x - 0.5, this.top + this.height, 1, 4);
      context.fillText(label, x, this.top + this.height + 6);
    }
    context.fillText(title, this.left + this.width / 2, this.top + this.height + 22);
  }

  // a tick on the left axis; y in CSS pixels
  leftTick(y, text) {
    const { context } = this;
    context.fillStyle = themeColour('soft');
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    context.fillRect(this.left - 4, y - 0.5, 4, 1);
    context.fillText(text, this.left - 7, y);
  }

  leftTitle(text) {
    const { context } = this;
    context.save();
    context.translate(8, this.top + this.height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.fillStyle = themeColour('soft');
    context.fillText(text, 0, 0);
    context.restore();
  }

  // position of an event in the plot, [x, y] from 0 to 1 from the top left; null outside unless `dragging`
  position(event, dragging) {
    const box = this.canvas.getBoundingClientRect();
    const x = (event.clientX - box.left - this.left) / this.width, y = (event.clientY - box.top - this.top) / this.height;
    if (!dragging && (x < 0 || x > 1 || y < 0 || y > 1)) return null;
    return [Math.max(0, Math.min(1, x)), Math.max(0, Math.min(1, y))];
  }

  // Call onPoint(position or null) when the pointer moves, and onDrag(start, end, finished) while it is down.
  followPointer(onPoint, onDrag) {
    let start = null, moved = false;
    this.canvas.addEventListener('pointerdown', (event) => {
      start = event.button === 0 ? this.position(event) : null;
      moved = false;
      if (start && event.pointerType === 'mouse') this.canvas.setPointerCapture(event.pointerId);
      onPoint(this.position(event));
    });
    this.canvas.addEventListener('pointermove', (event) => {
      const position = this.position(event, start !== null);
      onPoint(position);
      if (start && position && onDrag) {
        moved = moved || Math.hypot((position[0] - start[0]) * this.width, (position[1] - start[1]) * this.height) > 4;
        if (moved) onDrag(start, position, false);
      }
    });
    this.canvas.addEventListener('pointerup', (event) => {
      if (start && onDrag) onDrag(start, moved ? this.position(event, true) : null, true);
      start = null;
    });
    // a finger that moves up or down scrolls the page instead
    this.canvas.addEventListener('pointercancel', () => { start = null; });
    this.canvas.addEventListener('pointerleave', () => { if (!start) onPoint(null); });
  }
}

// 1 and round numbers up to `count`, about `maxTicks` of them
function ticks(count, maxTicks) {
  const minStep = count / Math.max(1, maxTicks);
  const power = 10 ** Math.floor(Math.log10(Math.max(minStep, 1)));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= minStep) ?? 10 * power;
  const numbers = [];
  for (let residue = step; residue <= count; residue += step) numbers.push(residue);
  return step > 1 && numbers[0] !== 1 ? [1, ...numbers] : numbers;
}

// [index, label] of residues to label on an axis, about `count` of them; the first of each of several chains has its name
function residueLabels(count) {
  if (!severalChains) return ticks(size, count).map((residue) => [residue - 1, residue]);
  const distance = (0.7 * size) / Math.max(1, count), labels = [];
  const isFree = (residue) => !labels.length || residue - labels[labels.length - 1][0] >= distance;
  for (const { name, first, length } of chains) {
    while (labels.length && !isFree(first) && typeof labels[labels.length - 1][1] === 'number') labels.pop();
    if (isFree(first)) labels.push([first, `${name}:1`]);
    for (const residue of ticks(length, (count * length) / size)) {
      if (residue > 1 && isFree(first + residue - 1)) labels.push([first + residue - 1, residue]);
    }
  }
  return labels;
}

// index of the residue at a position from 0 to 1
const residueAt = (position) => Math.max(0, Math.min(size - 1, Math.floor(position * size)));

// [x, y] step of an arrow key; undefined for other keys
const arrow = (event) => ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] })[event.key];

// draw a list of colours as a legend
function drawScale(id, stops) {
  const canvas = byId(id);
  if (!canvas) return;
  const context = canvas.getContext('2d');
  for (let x = 0; x < canvas.width; x++) {
    context.fillStyle = `rgb(${interpolate(stops, x / (canvas.width - 1)).join()})`;
    context.fillRect(x, 0, 1, 1);
  }
}
