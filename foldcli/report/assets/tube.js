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
    // with room for the thickness of the trace and for the mark of a residue under the pointer
    const unit = ((Math.min(width, height) / 2 - 12) * this.scale) / extent(model);
    this.points = present.map((i) => {
      const [x, y, z] = this.positionOf(i);
      const at = (row) => r[3 * row] * x + r[3 * row + 1] * y + r[3 * row + 2] * z;
      return { residue: i, x: width / 2 + unit * at(0), y: height / 2 - unit * at(1), z: at(2) };
    });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const thickness = Math.max(1.5, Math.min(12, 1.5 * unit)), ink = themeColour('ink');
    // Cα of bonded residues are 3.8 Å apart
    const linked = (a, b) => a && b && b.residue === a.residue + 1 && chainOf(a.residue) === chainOf(b.residue) && Math.hypot((a.x - b.x) / unit, (a.y - b.y) / unit, a.z - b.z) < 4.5;
    const middle = (a, b) => [(a.x + b.x) / 2, (a.y + b.y) / 2];
    // a curve for each residue, from and to the middle of its bonds
    const curves = this.points.map((at, i) => {
      const before = this.points[i - 1], after = this.points[i + 1], self = [at.x, at.y];
      return { at, start: linked(before, at) ? middle(before, at) : self, end: linked(at, after) ? middle(at, after) : self };
    });
    curves.sort((a, b) => a.at.z - b.at.z);
    for (const { at, start, end } of curves) {
      const colour = `rgb(${this.colourOf(at.residue, model).join()})`;
      for (const [strokeStyle, lineWidth, lineCap] of [[ink, thickness + 1.5, 'butt'], [colour, thickness, 'round']]) {
        Object.assign(context, { strokeStyle, lineWidth, lineCap });
        context.beginPath();
        context.moveTo(...start);
        context.quadraticCurveTo(at.x, at.y, ...end);
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
