// A canvas that is as sharp as the screen, with a frame, ticks, and what pointer and keys do in it.

class Plot {
  // margins: left, top, right, bottom, in CSS pixels; draw(plot) draws the inside
  constructor(name, margins, draw) {
    this.canvas = byId(`${name}-canvas`);
    this.said = byId(`${name}-said`);
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
    this.context.strokeStyle = themed('soft');
    this.context.lineWidth = 1;
    this.context.strokeRect(this.left - 0.5, this.top - 0.5, this.width + 1, this.height + 1);
  }

  // ticks at residues (from 1) below; the middle of residue i of n is at (i − ½) / n
  residueTicks(title) {
    const { context } = this;
    context.fillStyle = themed('soft');
    context.textAlign = 'center';
    context.textBaseline = 'top';
    for (const residue of ticks(size, this.width / 55)) {
      const x = this.left + ((residue - 0.5) / size) * this.width;
      context.fillRect(x - 0.5, this.top + this.height, 1, 4);
      context.fillText(residue, x, this.top + this.height + 6);
    }
    context.fillText(title, this.left + this.width / 2, this.top + this.height + 22);
  }

  // a tick on the left: y in CSS pixels
  leftTick(y, text) {
    const { context } = this;
    context.fillStyle = themed('soft');
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
    context.fillStyle = themed('soft');
    context.fillText(text, 0, 0);
    context.restore();
  }

  // where an event is inside, 0 to 1 from left and top; null outside
  place(event, held) {
    const box = this.canvas.getBoundingClientRect();
    const x = (event.clientX - box.left - this.left) / this.width, y = (event.clientY - box.top - this.top) / this.height;
    if (!held && (x < 0 || x > 1 || y < 0 || y > 1)) return null;
    return [Math.max(0, Math.min(1, x)), Math.max(0, Math.min(1, y))];
  }

  // pointed(place or null) while the pointer moves; dragged(from, to, ended) while a button or finger is held
  followPointer(pointed, dragged) {
    let from = null, moved = false;
    this.canvas.addEventListener('pointerdown', (event) => {
      from = event.button === 0 ? this.place(event) : null;
      moved = false;
      if (from && event.pointerType === 'mouse') this.canvas.setPointerCapture(event.pointerId);
      pointed(this.place(event));
    });
    this.canvas.addEventListener('pointermove', (event) => {
      const here = this.place(event, from !== null);
      pointed(here);
      if (from && here && dragged) {
        moved = moved || Math.hypot((here[0] - from[0]) * this.width, (here[1] - from[1]) * this.height) > 4;
        if (moved) dragged(from, here, false);
      }
    });
    this.canvas.addEventListener('pointerup', (event) => {
      if (from && dragged) dragged(from, moved ? this.place(event, true) : null, true);
      from = null;
    });
    // a finger that goes up or down scrolls the page instead
    this.canvas.addEventListener('pointercancel', () => { from = null; });
    this.canvas.addEventListener('pointerleave', () => { if (!from) pointed(null); });
  }
}

// 1 and round residue numbers, not more than about `most`
function ticks(count, most) {
  const wanted = count / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= wanted) ?? 10 * power;
  const found = [];
  for (let residue = step; residue <= count; residue += step) found.push(residue);
  return step > 1 && found[0] !== 1 ? [1, ...found] : found;
}

// residue (from 0) at a share of the width
const residueAt = (share) => Math.max(0, Math.min(size - 1, Math.floor(share * size)));

// what the arrow keys make of a step: one, with Shift `many`
const arrow = (event) => ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] })[event.key];

// a picture of one colour list, for a legend
function drawScale(id, stops) {
  const canvas = byId(id);
  if (!canvas) return;
  const context = canvas.getContext('2d');
  for (let x = 0; x < canvas.width; x++) {
    context.fillStyle = `rgb(${between(stops, x / (canvas.width - 1)).join()})`;
    context.fillRect(x, 0, 1, 1);
  }
}
