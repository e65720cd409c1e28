// A drawing on a canvas that can be rotated, where Mol* cannot be used; and the sphere around atoms.

class Drawing {
  constructor(container) {
    this.canvas = container.appendChild(document.createElement('canvas'));
    this.context = this.canvas.getContext('2d');
    Object.assign(this, { container, highlighted: [], model: data.models[0], rotation: [1, 0, 0, 0, 1, 0, 0, 0, 1], scale: 1 });
    new ResizeObserver(() => this.draw()).observe(container);
  }

  async show(model) {
    this.model = model;
    this.draw();
  }

  recolour() { this.draw(); }

  highlight(indices) {
    this.highlighted = indices;
    this.draw();
  }

  reset() {
    Object.assign(this, { rotation: [1, 0, 0, 0, 1, 0, 0, 0, 1], scale: 1 });
    this.draw();
  }

  rotate(axis, angle) {
    const c = Math.cos(angle), s = Math.sin(angle), old = this.rotation;
    const step = axis === 'x' ? [1, 0, 0, 0, c, -s, 0, s, c] : [c, 0, s, 0, 1, 0, -s, 0, c];
    this.rotation = old.map((_, at) => [0, 1, 2].reduce((sum, k) => sum + step[3 * Math.floor(at / 3) + k] * old[3 * k + (at % 3)], 0));
    this.draw();
  }

  zoom(factor) {
    this.scale = Math.max(0.2, Math.min(30, this.scale * factor));
    this.draw();
  }

  async picture() { return this.canvas.toDataURL('image/png'); }

  // project `places()`, [index, position], and paint them; `frame()` is the sphere to show, with a margin in pixels
  draw() {
    const width = this.container.clientWidth, height = this.container.clientHeight, ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (!width || !height) return;
    const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== pixels[0] || this.canvas.height !== pixels[1]) [this.canvas.width, this.canvas.height] = pixels;
    const { context, rotation: r } = this, { centre, radius, margin } = this.frame();
    const unit = ((Math.min(width, height) / 2 - margin) * this.scale) / radius;
    this.points = this.places().map(([index, position]) => {
      const [x, y, z] = Array.from(position, (value, k) => value - centre[k]);
      const at = (row) => r[3 * row] * x + r[3 * row + 1] * y + r[3 * row + 2] * z;
      return { index, x: width / 2 + unit * at(0), y: height / 2 - unit * at(1), z: at(2) };
    });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.paint(context, unit);
  }

  // the index of the frontmost point near a place; null if there is none
  nearest(x, y) {
    let best = null;
    for (const point of this.points ?? []) {
      if (Math.hypot(point.x - x, point.y - y) <= 8 && (best === null || point.z > best.z)) best = point;
    }
    return best && best.index;
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

const atomPosition = (model, atom) => Array.from(model.positions.subarray(3 * atom, 3 * atom + 3));

// the smallest sphere around the mean of atoms, with room around it
function sphere(model, atoms) {
  const points = atoms.map((atom) => atomPosition(model, atom));
  const centre = [0, 1, 2].map((k) => points.reduce((sum, point) => sum + point[k], 0) / points.length);
  return { centre, radius: points.reduce((most, point) => Math.max(most, Math.hypot(...centre.map((each, k) => point[k] - each))), 0) + 4 };
}
