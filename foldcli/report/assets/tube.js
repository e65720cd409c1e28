// A drawing of the Cα trace on a canvas, where Mol* cannot be used.

class Tube extends Drawing {
  constructor(container, colourOf, onHover, onPick) {
    super(container);
    Object.assign(this, { colourOf, spinning: false });
    this.followPointer(onHover, onPick);
  }

  reset() {
    this.spin(false);
    super.reset();
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

  // with room for the thickness of the trace and for the mark of a residue under the pointer
  frame() { return { centre: [0, 0, 0], radius: extent(this.model), margin: 12 }; }

  places() { return present.map((i) => [i, atomPosition(this.model, Math.max(0, this.model.residues[i].ca))]); }

  paint(context, unit) {
    const thickness = Math.max(1.5, Math.min(12, 1.5 * unit)), ink = themeColour('ink');
    // Cα of bonded residues are 3.8 Å apart
    const linked = (a, b) => a && b && b.index === a.index + 1 && chainOf(a.index) === chainOf(b.index) && Math.hypot((a.x - b.x) / unit, (a.y - b.y) / unit, a.z - b.z) < 4.5;
    const middle = (a, b) => [(a.x + b.x) / 2, (a.y + b.y) / 2];
    // a curve for each residue, from and to the middle of its bonds
    const curves = this.points.map((at, i) => {
      const before = this.points[i - 1], after = this.points[i + 1], self = [at.x, at.y];
      return { at, start: linked(before, at) ? middle(before, at) : self, end: linked(at, after) ? middle(at, after) : self };
    });
    curves.sort((a, b) => a.at.z - b.at.z);
    for (const { at, start, end } of curves) {
      const colour = `rgb(${this.colourOf(at.index, this.model).join()})`;
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
    for (const { x, y, index } of this.points) {
      if (!this.highlighted.includes(index)) continue;
      context.beginPath();
      context.arc(x, y, thickness / 2 + 5, 0, 2 * Math.PI);
      context.stroke();
    }
  }
}
