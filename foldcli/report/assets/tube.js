// A drawing of the Cα trace on a canvas, where Mol* cannot be used.

class Tube {
  constructor(container, colourOf, onHover, onPick) {
    this.canvas = container.appendChild(document.createElement('canvas'));
    this.context = this.canvas.getContext('2d');
    Object.assign(this, { container, colourOf, highlighted: [], spinning: false, model: data.models[0] });
    this.reset();
    new ResizeObserver(() => this.draw()).observe(container);
    this.followPointer(onHover, onPick);
  }

  async show(model) {
    this.model = model;
    this.draw();
  }

  recolour() { this.draw(); }

  highlight(residues) {
    this.highlighted = residues;
    this.draw();
  }

  reset() {
    this.rotation = [1, 0, 0, 0, 1, 0, 0, 0, 1];
    this.scale = 1;
    this.spin(false);
    this.draw();
  }

  rotate(axis, angle) {
    const c = Math.cos(angle), s = Math.sin(angle), old = this.rotation;
    const step = axis === 'x' ? [1, 0, 0, 0, c, -s, 0, s, c] : [c, 0, s, 0, 1, 0, -s, 0, c];
    this.rotation = old.map((_, at) => [0, 1, 2].reduce((sum, k) => sum + step[3 * Math.floor(at / 3) + k] * old[3 * k + (at % 3)], 0));
    this.draw();
  }

  zoom(factor) {
    this.scale = Math.max(0.2, Math.min(20, this.scale * factor));
    this.draw();
  }

  // the trace is thin enough to see all of it
  focus() {}

  spin(on) {
    const turn = () => {
      if (!this.spinning) return;
      this.rotate('y', 0.01);
      requestAnimationFrame(turn);
    };
    const start = on && !this.spinning;
    this.spinning = on;
    if (start) turn();
  }

  async picture() { return this.canvas.toDataURL('image/png'); }

  draw() {
    const width = this.container.clientWidth, height = this.container.clientHeight, ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (!width || !height) return;
    const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== pixels[0] || this.canvas.height !== pixels[1]) [this.canvas.width, this.canvas.height] = pixels;
    const { context, rotation: r, model } = this;
    const radius = Math.max(4, ...present.map((i) => Math.hypot(...this.positionOf(i))));
    const unit = (0.47 * Math.min(width, height) * this.scale) / radius;
    this.points = present.map((i) => {
      const [x, y, z] = this.positionOf(i);
      const at = (row) => r[3 * row] * x + r[3 * row + 1] * y + r[3 * row + 2] * z;
      return { residue: i, x: width / 2 + unit * at(0), y: height / 2 - unit * at(1), z: at(2) };
    });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.lineCap = 'round';
    const thickness = Math.max(1.5, Math.min(12, 1.5 * unit)), ink = themeColour('ink');
    // half of each segment belongs to either residue
    const halves = [];
    this.points.forEach((a, i) => {
      const b = this.points[i + 1];
      if (!b || b.residue !== a.residue + 1) return;
      const middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, z: (a.z + b.z) / 2 };
      halves.push([a, middle, a.residue], [middle, b, b.residue]);
    });
    if (!halves.length) for (const a of this.points) halves.push([a, a, a.residue]);
    halves.sort((a, b) => a[0].z + a[1].z - b[0].z - b[1].z);
    for (const [a, b, residue] of halves) {
      for (const [colour, lineWidth] of [[ink, thickness + 1.5], [`rgb(${this.colourOf(residue, model).join()})`, thickness]]) {
        context.strokeStyle = colour;
        context.lineWidth = lineWidth;
        context.beginPath();
        context.moveTo(a.x, a.y);
        context.lineTo(b.x, b.y);
        context.stroke();
      }
    }
    context.lineWidth = 2.5;
    context.strokeStyle = ink;
    for (const { x, y, residue } of this.points) {
      if (!this.highlighted.includes(residue)) continue;
      context.beginPath();
      context.arc(x, y, thickness / 2 + 5, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  positionOf(residue) {
    const ca = Math.max(0, this.model.residues[residue].ca);
    return this.model.positions.subarray(3 * ca, 3 * ca + 3);
  }

  // the frontmost residue drawn near a point; null if there is none
  nearest(x, y) {
    let best = null;
    for (const point of this.points ?? []) {
      if (Math.hypot(point.x - x, point.y - y) <= 8 && (best === null || point.z > best.z)) best = point;
    }
    return best && best.residue;
  }

  followPointer(onHover, onPick) {
    const pointers = new Map();
    let moved = false;
    const spread = () => { const [a, b] = [...pointers.values()]; return Math.hypot(a.x - b.x, a.y - b.y); };
    this.canvas.addEventListener('pointerdown', (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      moved = false;
    });
    this.canvas.addEventListener('pointermove', (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return onHover(this.nearest(event.offsetX, event.offsetY));
      const distance = pointers.size === 2 ? spread() : 0;
      const [dx, dy] = [event.offsetX - before.x, event.offsetY - before.y];
      pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      moved = moved || Math.abs(dx) + Math.abs(dy) > 1;
      if (pointers.size === 2) return this.zoom(spread() / Math.max(1, distance));
      this.rotate('y', dx / 100);
      this.rotate('x', dy / 100);
    });
    const release = (event) => {
      if (pointers.delete(event.pointerId) && !moved && event.type === 'pointerup') onPick(this.nearest(event.offsetX, event.offsetY));
    };
    this.canvas.addEventListener('pointerup', release);
    this.canvas.addEventListener('pointercancel', release);
    this.canvas.addEventListener('pointerleave', () => onHover(null));
    this.canvas.addEventListener('wheel', (event) => {
      if (document.activeElement !== byId('canvas')) return;
      this.zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
      event.preventDefault();
    }, { passive: false });
  }
}
