// Molecules of any kind: a simple drawing at once, and Mol*'s as soon as it is loaded. Residue indices are tokens.

const atomTokens = unpack(data.atomTokens, Uint32Array), bondLines = unpack(data.lines, Uint32Array);
for (const model of data.models) {
  model.positions = Float32Array.from(unpack(model.atoms, Int16Array), (value) => value * data.step);
  model.atomPlddt = Float32Array.from(unpack(model.atomPlddt, Uint16Array), (value) => value / 100);
}
const atomCount = data.before.length;
const kindOf = new Map(chains.map(({ name }, i) => [name, data.kinds[i]]));
const isPolymer = (name) => ['protein', 'RNA', 'DNA'].includes(kindOf.get(name));
// chain, number, component, first atom and end of each residue; index of each atom's residue
const residues = data.residues.map(([chain, number, code, first], i) => ({ chain, number, code, first, end: data.residues[i + 1]?.[3] ?? atomCount }));
const atomResidues = new Uint32Array(atomCount);
residues.forEach(({ first, end }, i) => atomResidues.fill(i, first, end));
const residueText = ({ chain, code, number }) => `${chain}:${code}${isPolymer(chain) || kindOf.get(chain) === 'branched ligand' ? ` ${number}` : ''}`;
const heteroColours = { N: '#3050f8', O: '#e0200d', S: '#e6b800', P: '#ff8000', F: '#6fbf3f', CL: '#1fae1f', BR: '#a62929', I: '#940094' };
const elements = data.before.map((text) => text.split(' ')[2]);
let colourMode = 'confidence', view = null;

// axes count tokens here
for (const method of ['residueTicks', 'leftTitle']) {
  const original = Plot.prototype[method];
  Plot.prototype[method] = function (title) { original.call(this, title.replace('residue', 'token')); };
}

// [r, g, b] of an atom
function atomColour(atom, model) {
  const { chain } = residues[atomResidues[atom]];
  if (!isPolymer(chain) && heteroColours[elements[atom]]) return rgb(heteroColours[elements[atom]]);
  if (colourMode === 'chain') return chainColours[chains.findIndex(({ name }) => name === chain) % chainColours.length];
  return confidenceColours[confidenceClass(model.atomPlddt[atom])];
}

// the structure as mmCIF, superposed on the best model
function cifText(model) {
  const columns = ['group_PDB', 'id', 'type_symbol', 'label_atom_id', 'label_alt_id', 'label_comp_id', 'label_asym_id', 'label_entity_id', 'label_seq_id', 'Cartn_x', 'Cartn_y', 'Cartn_z', 'occupancy', 'B_iso_or_equiv', 'pdbx_formal_charge', 'auth_seq_id', 'auth_asym_id', 'pdbx_PDB_model_num'];
  const lines = [data.header, 'loop_', ...columns.map((name) => `_atom_site.${name}`)];
  for (let i = 0; i < atomCount; i++) {
    const xyz = Array.from(model.positions.subarray(3 * i, 3 * i + 3), (value) => value.toFixed(3)).join(' ');
    lines.push(`${data.before[i]} ${xyz} 1.00 ${model.atomPlddt[i].toFixed(2)} ${data.after[i]}`);
  }
  return `${lines.join('\n')}\n`;
}

const atomPosition = (model, atom) => Array.from(model.positions.subarray(3 * atom, 3 * atom + 3));

// the smallest sphere around the mean of atoms, with room around it
function sphere(model, atoms) {
  const points = atoms.map((atom) => atomPosition(model, atom));
  const centre = [0, 1, 2].map((k) => points.reduce((sum, point) => sum + point[k], 0) / points.length);
  return { centre, radius: points.reduce((most, point) => Math.max(most, Math.hypot(...centre.map((each, k) => point[k] - each))), 0) + 4 };
}
const allAtoms = Array.from({ length: atomCount }, (_, i) => i);

// Traces of polymers and bonds of ligands, with names; for browsers without WebGL and pages without their folder.
class Sketch {
  constructor(container) {
    this.canvas = document.createElement('canvas');
    container.append(this.canvas);
    this.container = container;
    this.reset();
    new ResizeObserver(() => this.draw()).observe(container);
    this.followPointer();
  }

  show(model) { this.model = model; this.draw(); }

  reset() {
    Object.assign(this, { rotation: [1, 0, 0, 0, 1, 0, 0, 0, 1], scale: 1, target: null });
    this.draw();
  }

  recolour() { this.draw(); }

  highlight(tokens) { this.highlighted = new Set(tokens); this.draw(); }

  focus(atoms) { this.target = atoms; this.scale = 1; this.draw(); }

  zoom(factor) { this.scale = Math.max(0.2, Math.min(30, this.scale * factor)); this.draw(); }

  rotate(axis, angle) {
    const c = Math.cos(angle), s = Math.sin(angle), old = this.rotation;
    const step = axis === 'x' ? [1, 0, 0, 0, c, -s, 0, s, c] : [c, 0, s, 0, 1, 0, -s, 0, c];
    this.rotation = old.map((_, at) => [0, 1, 2].reduce((sum, k) => sum + step[3 * Math.floor(at / 3) + k] * old[3 * k + (at % 3)], 0));
    this.draw();
  }

  async picture() { return this.canvas.toDataURL('image/png'); }

  draw() {
    const width = this.container.clientWidth, height = this.container.clientHeight, ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (!width || !height || !this.model) return;
    [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    const context = this.canvas.getContext('2d'), { model, rotation: r } = this;
    const { centre, radius } = sphere(model, this.target ?? allAtoms);
    const unit = ((Math.min(width, height) / 2 - 8) * this.scale) / radius;
    this.points = allAtoms.map((atom) => {
      const [x, y, z] = atomPosition(model, atom).map((value, k) => value - centre[k]);
      const at = (row) => r[3 * row] * x + r[3 * row + 1] * y + r[3 * row + 2] * z;
      return { x: width / 2 + unit * at(0), y: height / 2 - unit * at(1), z: at(2), atom };
    });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.lineCap = 'round';
    this.drawLines(context, unit);
    this.drawNames(context);
  }

  drawLines(context, unit) {
    const drawn = [];
    for (let k = 0; k < bondLines.length; k += 2) drawn.push([this.points[bondLines[k]], this.points[bondLines[k + 1]]]);
    // ions have no bonds
    const bonded = new Set(bondLines);
    for (const { chain, first, end } of residues) if (!isPolymer(chain)) for (let i = first; i < end; i++) if (!bonded.has(i)) drawn.push([this.points[i], this.points[i]]);
    drawn.sort((a, b) => a[0].z + a[1].z - b[0].z - b[1].z);
    const marked = this.highlighted?.size ? this.highlighted : state.selected;
    for (const [a, b] of drawn) {
      const polymer = isPolymer(residues[atomResidues[a.atom]].chain), middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
      const thickness = Math.max(1.5, Math.min(10, (polymer ? 1.2 : a === b ? 1.6 : 0.45) * unit));
      for (const [from, outline] of [[a, true], [b, true], [a, false], [b, false]]) {
        context.strokeStyle = outline ? (marked.has(atomTokens[from.atom]) ? themeColour('mark') : themeColour('ink')) : `rgb(${atomColour(from.atom, this.model).join()})`;
        context.lineWidth = thickness + (outline ? (marked.has(atomTokens[from.atom]) ? 4 : 1.5) : 0);
        context.beginPath();
        context.moveTo(from.x, from.y);
        context.lineTo(middle.x, middle.y);
        context.stroke();
      }
    }
  }

  drawNames(context) {
    context.font = '600 13px system-ui, "DejaVu Sans", sans-serif';
    context.textAlign = 'center';
    context.lineWidth = 4;
    for (const [text, atoms] of names()) {
      const x = atoms.reduce((sum, atom) => sum + this.points[atom].x, 0) / atoms.length;
      const y = Math.min(...atoms.map((atom) => this.points[atom].y)) - 7;
      context.strokeStyle = themeColour('plot');
      context.strokeText(text, x, y);
      context.fillStyle = themeColour('ink');
      context.fillText(text, x, y);
    }
  }

  nearest(x, y) {
    let best = null;
    for (const point of this.points ?? []) if (Math.hypot(point.x - x, point.y - y) <= 9 && (best === null || point.z > best.z)) best = point;
    return best && best.atom;
  }

  followPointer() {
    const canvas = this.canvas;
    let last = null;
    canvas.addEventListener('pointerdown', (event) => { canvas.setPointerCapture(event.pointerId); last = event; });
    canvas.addEventListener('pointermove', (event) => {
      if (!last) return hoverAtom(this.nearest(event.offsetX, event.offsetY));
      this.rotate('y', (event.clientX - last.clientX) / 100);
      this.rotate('x', (event.clientY - last.clientY) / 100);
      last = event;
    });
    for (const name of ['pointerup', 'pointercancel']) canvas.addEventListener(name, () => { last = null; });
    canvas.addEventListener('wheel', (event) => {
      if (document.activeElement !== byId('canvas')) return;
      this.zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
      event.preventDefault();
    }, { passive: false });
  }
}

// [text, atoms] of the names to draw: ligands and ions, and the first residue of each polymer
function names() {
  const seen = new Set(), result = [];
  for (const residue of residues) {
    const atoms = allAtoms.slice(residue.first, residue.end);
    if (!isPolymer(residue.chain)) result.push([residueText(residue), atoms]);
    else if (!seen.has(residue.chain)) result.push([`${residue.chain}: ${kindOf.get(residue.chain)}`, atoms.slice(0, 1)]);
    seen.add(residue.chain);
  }
  return result;
}

// Mol*: cartoons of polymers, atoms and bonds of ligands and of residues around the one that is shown
class Molecules {
  static async create(container) {
    const { PluginContext, DefaultPluginSpec } = molstar.lib.plugin;
    const spec = DefaultPluginSpec();
    const used = /highlight-loci|camera-controls|structure-info|secondary-structure|valence/;
    spec.behaviors = spec.behaviors.filter((each) => used.test(each.transformer.id));
    const plugin = new PluginContext(spec);
    await plugin.init();
    if (!(await plugin.mountAsync(container)) || !plugin.canvas3d) throw new Error('no WebGL');
    return new Molecules(plugin);
  }

  constructor(plugin) {
    Object.assign(this, { plugin, theme: 0, parts: [], queue: Promise.resolve() });
    plugin.representation.structure.themes.colorThemeRegistry.add(this.colourTheme());
    plugin.canvas3d.setProps({
      transparentBackground: true,
      camera: { helper: { axes: { name: 'off', params: {} } } },
      multiSample: { mode: 'off' },
      cameraFog: { name: 'on', params: { intensity: 15 } },
      postprocessing: { occlusion: { name: 'off', params: {} }, shadow: { name: 'off', params: {} }, antialiasing: { name: 'smaa', params: { edgeThreshold: 0.1, maxSearchSteps: 16 } }, outline: { name: 'on', params: { scale: 1, threshold: 0.33, color: 0x000000, includeTransparent: true } } },
    });
    plugin.behaviors.interaction.hover.subscribe(({ current: { loci } }) => {
      if (loci.kind !== 'element-loci' || !loci.elements.length) return hoverAtom(null);
      const { unit, element } = molstar.lib.structure.StructureElement.Loci.getFirstLocation(loci);
      hoverAtom(rowOf(unit, element));
    });
  }

  colourTheme() {
    const colourAt = (unit, element) => {
      const [r, g, b] = atomColour(rowOf(unit, element), this.model);
      return (r << 16) | (g << 8) | b;
    };
    const color = (location) => {
      if (location.kind === 'element-location') return colourAt(location.unit, location.element);
      if (location.kind === 'bond-location') return colourAt(location.aUnit, location.aUnit.elements[location.aIndex]);
      return 0x888888;
    };
    const theme = { granularity: 'group', color, description: '' };
    const getParams = () => ({ version: { type: 'value', defaultValue: 0 } });
    const factory = (_, props) => ({ ...theme, factory, props });
    return { name: 'molecules', label: 'molecules', category: 'Page', factory, getParams, defaultValues: { version: 0 }, isApplicable: () => true };
  }

  change(step) {
    this.queue = this.queue.then(step).catch((error) => console.error(error));
    return this.queue;
  }

  show(model) {
    return this.change(async () => {
      const { builders, canvas3d } = this.plugin, snapshot = this.structure && canvas3d.camera.getSnapshot();
      await this.plugin.clear();
      Object.assign(this, { model, parts: [], around: null });
      const raw = await builders.data.rawData({ data: cifText(model), label: 'model' });
      const trajectory = await builders.structure.parseTrajectory(raw, 'mmcif');
      this.structure = await builders.structure.createStructure(await builders.structure.createModel(trajectory));
      const sticks = { type: 'ball-and-stick', typeParams: { sizeFactor: 0.22 } };
      for (const [kind, shown] of [['polymer', { type: 'cartoon' }], ['non-standard', sticks], ['ligand', sticks], ['branched', sticks], ['ion', { type: 'ball-and-stick', typeParams: { sizeFactor: 0.6 } }], ['lipid', sticks]]) {
        const component = await builders.structure.tryCreateComponentStatic(this.structure, kind);
        if (!component) continue;
        this.parts.push(await builders.structure.representation.addRepresentation(component, { ...shown, color: 'molecules' }));
        if (kind !== 'non-standard') await this.label(component, kind === 'polymer' ? 'chain' : 'residue');
      }
      if (snapshot) canvas3d.requestCameraReset({ durationMs: 0, snapshot });
      else this.frame(0);
    });
  }

  // names of the chains or residues of a component
  label(component, level, residueScale = 2) {
    const [ink, ground] = ['ink', 'plot'].map((name) => parseInt(themeColour(name).slice(1), 16));
    const typeParams = { level, residueScale, chainScale: 3.5, borderWidth: 0.25, borderColor: ground };
    return this.plugin.builders.structure.representation.addRepresentation(component, { type: 'label', typeParams, color: 'uniform', colorParams: { value: ink } });
  }

  recolour() {
    return this.change(async () => {
      const color = { name: 'molecules', params: { version: ++this.theme } };
      for (const part of this.parts) await this.plugin.build().to(part).update((old) => ({ ...old, colorTheme: color })).commit();
    });
  }

  // atoms → Mol*'s selection of their residues, or of atoms of ligands
  schema(atoms) {
    const items = new Map();
    for (const atom of atoms) {
      const { chain, number } = residues[atomResidues[atom]];
      const item = { auth_asym_id: chain, auth_seq_id: number, ...(isPolymer(chain) ? {} : { label_atom_id: data.atomNames[atom] }) };
      items.set(JSON.stringify(item), item);
    }
    return { items: [...items.values()] };
  }

  highlight(tokens) {
    if (!this.structure?.obj) return;
    const marked = new Set(tokens.length ? tokens : state.selected), atoms = allAtoms.filter((atom) => marked.has(atomTokens[atom]));
    const { lociHighlights } = this.plugin.managers.interactivity;
    if (atoms.length) lociHighlights.highlightOnly({ loci: molstar.lib.structure.StructureElement.Loci.fromSchema(this.structure.obj.data, this.schema(atoms)) }, false);
    else lociHighlights.clearHighlights();
  }

  // zoom to atoms of a ligand, and show the residues around it
  focus(atoms, around) {
    return this.change(async () => {
      if (this.around) await this.plugin.build().delete(this.around).commit();
      this.around = null;
      const { builders } = this.plugin;
      if (around.length) {
        const bundle = molstar.lib.structure.StructureElement.Bundle.fromSchema(this.structure.obj.data, this.schema(around));
        const component = await builders.structure.tryCreateComponent(this.structure, { type: { name: 'bundle', params: bundle }, nullIfEmpty: true, label: 'around' }, 'around');
        if (component) {
          this.around = component.ref;
          await builders.structure.representation.addRepresentation(component, { type: 'ball-and-stick', typeParams: { sizeFactor: 0.15 }, color: 'molecules' });
          await this.label(component, 'residue', 1);
        }
      }
      const { centre, radius } = sphere(this.model, atoms), { position, target, up } = this.plugin.canvas3d.camera.getSnapshot();
      this.look(centre, radius, up, [0, 1, 2].map((k) => target[k] - position[k]), 400);
    });
  }

  frame(durationMs) {
    const { centre, radius } = sphere(this.model, allAtoms);
    this.look(centre, radius, [0, 1, 0], [0, 0, -1], durationMs);
  }

  look(target, radius, up, direction, durationMs) {
    const { canvas3d } = this.plugin;
    canvas3d.requestCameraReset({ durationMs, snapshot: { ...canvas3d.camera.getInvariantFocus(target, radius, up, direction), radius } });
  }

  reset() { return this.change(() => this.frame(200)); }

  zoom(factor) {
    const { camera } = this.plugin.canvas3d, { position, target } = camera.getSnapshot();
    camera.setState({ position: [0, 1, 2].map((k) => target[k] + (position[k] - target[k]) / factor) }, 0);
    this.plugin.canvas3d.requestDraw();
  }

  rotate(axis, angle) {
    const { camera } = this.plugin.canvas3d, { position, target, up } = camera.getSnapshot();
    const eye = [0, 1, 2].map((k) => position[k] - target[k]);
    const length = Math.hypot(...up), y = Array.from(up, (each) => each / length);
    const x = [y[1] * eye[2] - y[2] * eye[1], y[2] * eye[0] - y[0] * eye[2], y[0] * eye[1] - y[1] * eye[0]];
    const wide = Math.hypot(...x), distance = Math.hypot(...eye), side = x.map((each) => each / wide);
    const c = Math.cos(angle), s = Math.sin(angle);
    // turn the eye within the plane of the view direction and the axis across the rotation
    const across = axis === 'y' ? side.map((each) => -each) : y;
    const moved = eye.map((each, k) => each * c + across[k] * distance * s);
    const raised = axis === 'y' ? y : y.map((each, k) => each * c - (eye[k] / distance) * s);
    camera.setState({ position: [0, 1, 2].map((k) => target[k] + moved[k]), up: raised }, 0);
    this.plugin.canvas3d.requestDraw();
  }

  async picture() { return this.plugin.helpers.viewportScreenshot.getImageDataUri(); }
}

// Mol* may sort atoms; the row of an atom in the table
const rowOf = (unit, element) => unit.model.atomicHierarchy.atomSourceIndex.value(element);

function hoverAtom(atom) {
  update({ hovered: atom === null ? [] : [atomTokens[atom]], atom });
}

function updateReadout() {
  const { atom } = state, model = currentModel();
  if (atom === undefined || atom === null) {
    byId('structure-readout').textContent = [...new Set(state.hovered)].map((token) => `${residueName(token)}, pLDDT ${model.plddt[token].toFixed(1)}`).join(' · ');
    return;
  }
  byId('structure-readout').textContent = `${residueText(residues[atomResidues[atom]])} ${data.atomNames[atom]}, pLDDT ${model.atomPlddt[atom].toFixed(1)}`;
}

function loadScript(source) {
  return new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement('script'), { src: source, onload: resolve });
    script.onerror = () => reject(new Error(`${decodeURIComponent(source)} is not there. It belongs to the folder of results that this page comes from`));
    document.head.append(script);
  });
}

async function startMolecules() {
  const source = byId('viewer').dataset.script;
  if (!source) throw new Error(byId('viewer').dataset.missing);
  if (!document.createElement('canvas').getContext('webgl2')) throw new Error('this browser has no WebGL');
  await loadScript(source);
  const box = byId('cartoon');
  box.hidden = false;
  try {
    const molecules = await Molecules.create(box);
    await molecules.show(currentModel());
    byId('tube').hidden = true;
    view = molecules;
  } catch (error) {
    box.hidden = true;
    throw error;
  }
  byId('viewer').dataset.drawn = 'molecules';
}

view = new Sketch(byId('tube'));
view.show(currentModel());
byId('viewer').dataset.drawn = 'sketch';
Object.defineProperty(byId('viewer'), 'structure', { get: () => view });
startMolecules().catch((error) => {
  byId('structure-problem').textContent = `A simple drawing is shown instead: ${error.message}.`;
}).finally(() => { byId('viewer').dataset.ready = ''; });

onChange((changed) => {
  if (changed.has('hovered') && !changed.has('atom')) state.atom = null;
  if (changed.has('model')) {
    view.show(currentModel());
    for (const box of document.querySelectorAll('[data-model]')) box.hidden = Number(box.dataset.model) !== state.model;
  }
  view.highlight([...new Set(state.hovered)]);
  updateReadout();
});
for (const input of document.querySelectorAll('input[name="model"]')) input.addEventListener('change', () => update({ model: Number(input.value) }));
for (const button of document.querySelectorAll('[data-focus]')) {
  button.addEventListener('click', () => {
    const near = new Set(data.ligandContacts[state.model]);
    const own = allAtoms.filter((atom) => residues[atomResidues[atom]].chain === button.dataset.focus);
    view.focus(own, allAtoms.filter((atom) => near.has(residueText(residues[atomResidues[atom]]))));
    byId('viewer').scrollIntoView({ block: 'center' });
  });
}
byId('colour-mode').addEventListener('change', (event) => {
  colourMode = event.target.value;
  for (const legend of document.querySelectorAll('#structure [data-legend]')) legend.hidden = legend.dataset.legend !== colourMode;
  view.recolour();
});
chains.forEach(({ name }, i) => {
  const entry = document.createElement('li'), swatch = document.createElement('span');
  swatch.className = 'swatch';
  swatch.style.background = data.palettes.chains[i % chainColours.length];
  entry.append(swatch, `${name}: ${data.kinds[i]}`);
  byId('chain-legend').append(entry);
});
byId('zoom-in').addEventListener('click', () => view.zoom(1.25));
byId('zoom-out').addEventListener('click', () => view.zoom(1 / 1.25));
byId('reset').addEventListener('click', () => view.reset());
byId('save-picture').addEventListener('click', async () => {
  Object.assign(document.createElement('a'), { href: await view.picture(), download: `${data.name}_rank_${currentModel().rank}.png` }).click();
});
byId('canvas').addEventListener('pointerdown', () => byId('canvas').focus({ preventScroll: true }));
byId('canvas').addEventListener('pointerleave', () => hoverAtom(null));
byId('canvas').addEventListener('wheel', (event) => { if (document.activeElement !== byId('canvas')) event.stopPropagation(); }, { capture: true });
byId('canvas').addEventListener('keydown', (event) => {
  const step = arrow(event), small = Math.PI / 18;
  if (step) view.rotate(step[0] ? 'y' : 'x', (step[0] || step[1]) * small);
  else if (event.key === '+' || event.key === '=') view.zoom(1.2);
  else if (event.key === '-') view.zoom(1 / 1.2);
  else if (event.key === '0') view.reset();
  else return;
  event.preventDefault();
});
