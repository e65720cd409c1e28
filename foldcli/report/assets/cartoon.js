// A cartoon drawn by Mol*: helices, strands and coils, and the side chains of selected residues.

// more side chains at once are slow and hide each other
const MAX_SIDE_CHAINS = 300;
// Å that strands and the ends of helices are drawn beyond Cα
const CARTOON_MARGIN = 2;
const elementColours = { N: 0x3050f8, O: 0xe0200d, S: 0xe6b800 };
const toHex = ([r, g, b]) => (r << 16) | (g << 8) | b;

class Cartoon {
  static async create(container, colourOf, onHover, onPick) {
    const { PluginContext, DefaultPluginSpec } = molstar.lib.plugin;
    const spec = DefaultPluginSpec();
    // without the focus on clicked residues, labels and reports: the page has its own
    const used = /highlight-loci|camera-controls|structure-info|secondary-structure|valence/;
    spec.behaviors = spec.behaviors.filter((each) => used.test(each.transformer.id));
    const plugin = new PluginContext(spec);
    await plugin.init();
    if (!(await plugin.mountAsync(container)) || !plugin.canvas3d) throw new Error('no WebGL');
    return new Cartoon(plugin, colourOf, onHover, onPick);
  }

  constructor(plugin, colourOf, onHover, onPick) {
    Object.assign(this, { plugin, colourOf, selected: [], theme: 0, queue: Promise.resolve() });
    for (const [name, byElement] of [['page', false], ['page-elements', true]]) {
      plugin.representation.structure.themes.colorThemeRegistry.add(this.colourTheme(name, byElement));
    }
    plugin.canvas3d.setProps({
      transparentBackground: true,
      camera: { helper: { axes: { name: 'off', params: {} } } },
      // cheap enough for browsers without a GPU
      multiSample: { mode: 'off' },
      cameraFog: { name: 'on', params: { intensity: 20 } },
      postprocessing: { occlusion: { name: 'off', params: {} }, shadow: { name: 'off', params: {} }, antialiasing: { name: 'smaa', params: { edgeThreshold: 0.1, maxSearchSteps: 16 } }, outline: { name: 'on', params: { scale: 1, threshold: 0.33, color: 0x000000, includeTransparent: true } } },
    });
    const residueOf = (loci) => {
      if (loci.kind !== 'element-loci' || !loci.elements.length) return null;
      const { Loci } = molstar.lib.structure.StructureElement, { element, unit } = Loci.getFirstLocation(loci);
      return residueIndex(unit, element);
    };
    plugin.behaviors.interaction.hover.subscribe(({ current }) => onHover(residueOf(current.loci)));
    plugin.behaviors.interaction.click.subscribe(({ current, button }) => { if (button === 1) onPick(residueOf(current.loci)); });
  }

  // Mol* colours each atom by its residue; `byElement` gives nitrogen, oxygen and sulfur colours of their own
  colourTheme(name, byElement) {
    const colourAt = (unit, element) => {
      const symbol = byElement ? unit.model.atomicHierarchy.atoms.type_symbol.value(element) : '';
      return elementColours[symbol] ?? toHex(this.colourOf(residueIndex(unit, element), this.model));
    };
    const color = (location) => {
      if (location.kind === 'element-location') return colourAt(location.unit, location.element);
      if (location.kind === 'bond-location') return colourAt(location.aUnit, location.aUnit.elements[location.aIndex]);
      return 0x888888;
    };
    const theme = { granularity: 'group', color, description: '' };
    const getParams = () => ({ version: { type: 'value', defaultValue: 0 } });
    const factory = (_, props) => ({ ...theme, factory, props });
    return { name, label: name, category: 'Page', factory, getParams, defaultValues: { version: 0 }, isApplicable: () => true };
  }

  // changes of Mol*'s state one after the other
  change(step) {
    this.queue = this.queue.then(step).catch((error) => console.error(error));
    return this.queue;
  }

  show(model) {
    return this.change(async () => {
      const { builders, canvas3d } = this.plugin, first = !this.structure;
      const camera = first ? null : canvas3d.camera.getSnapshot();
      await this.plugin.clear();
      this.model = model;
      const raw = await builders.data.rawData({ data: pdbText(model), label: 'model' });
      const trajectory = await builders.structure.parseTrajectory(raw, 'pdb');
      this.structure = await builders.structure.createStructure(await builders.structure.createModel(trajectory));
      const polymer = await builders.structure.tryCreateComponentStatic(this.structure, 'polymer');
      this.cartoon = polymer && await builders.structure.representation.addRepresentation(polymer, {
        type: 'cartoon', typeParams: { quality: size > 1500 ? 'medium' : 'high', visuals: ['polymer-trace'] }, color: 'page',
      });
      await this.showSideChains();
      if (camera) canvas3d.requestCameraReset({ durationMs: 0, snapshot: camera });
      else this.frame(0);
    });
  }

  recolour(selected) {
    return this.change(async () => {
      this.selected = selected;
      if (!this.structure) return;
      const color = { name: 'page', params: { version: ++this.theme } };
      if (this.cartoon) await this.plugin.build().to(this.cartoon).update((old) => ({ ...old, colorTheme: color })).commit();
      await this.showSideChains();
    });
  }

  async showSideChains() {
    const { builders } = this.plugin;
    if (this.sideChains) await this.plugin.build().delete(this.sideChains).commit();
    this.sideChains = null;
    const residues = this.selected.filter((i) => this.model.residues[i].ca >= 0);
    if (!residues.length || residues.length > MAX_SIDE_CHAINS) return;
    const items = residues.flatMap((i) => {
      // with Cα, where the side chain joins the cartoon, and proline's nitrogen, which closes its ring
      const atoms = this.model.residues[i].atoms.filter((atom) => !['N', 'C', 'O', 'OXT'].includes(atom) || (atom === 'N' && this.model.residues[i].name === 'PRO'));
      return atoms.map((atom) => ({ ...residueSchema(i), label_atom_id: atom }));
    });
    const bundle = molstar.lib.structure.StructureElement.Bundle.fromSchema(this.structure.obj.data, { items });
    const type = { name: 'bundle', params: bundle };
    const component = await builders.structure.tryCreateComponent(this.structure, { type, nullIfEmpty: true, label: 'Side chains' }, 'side-chains');
    if (!component) return;
    this.sideChains = component.ref;
    await builders.structure.representation.addRepresentation(component, {
      type: 'ball-and-stick', typeParams: { sizeFactor: 0.22, multipleBonds: 'off' }, color: 'page-elements',
    });
  }

  highlight(residues) {
    if (!this.structure?.obj) return;
    const { Loci } = molstar.lib.structure.StructureElement;
    const items = residues.map(residueSchema);
    const { lociHighlights } = this.plugin.managers.interactivity;
    if (items.length) lociHighlights.highlightOnly({ loci: Loci.fromSchema(this.structure.obj.data, { items }) }, false);
    else lociHighlights.clearHighlights();
  }

  rotate(axis, angle) {
    const { camera } = this.plugin.canvas3d, { position, target, up } = camera.getSnapshot();
    const eye = [0, 1, 2].map((k) => position[k] - target[k]);
    const across = [up[1] * eye[2] - up[2] * eye[1], up[2] * eye[0] - up[0] * eye[2], up[0] * eye[1] - up[1] * eye[0]];
    const around = axis === 'y' ? Array.from(up) : across;
    const turn = (vector) => turned(vector, around, -angle);
    const moved = turn(eye);
    camera.setState({ position: [0, 1, 2].map((k) => target[k] + moved[k]), up: turn(Array.from(up)) }, 0);
    this.plugin.canvas3d.requestDraw();
  }

  zoom(factor) {
    const { camera } = this.plugin.canvas3d, { position, target } = camera.getSnapshot();
    camera.setState({ position: [0, 1, 2].map((k) => target[k] + (position[k] - target[k]) / factor) }, 0);
    this.plugin.canvas3d.requestDraw();
  }

  reset() {
    this.spin(false);
    return this.change(() => this.frame(200));
  }

  // zoom to residues, from the current direction
  focus(residues) {
    const atoms = residues.flatMap((i) => this.model.residues[i].atoms.map((_, k) => this.positionOf(this.model.residues[i].first + k)));
    if (!atoms.length) return;
    const centre = [0, 1, 2].map((k) => atoms.reduce((sum, atom) => sum + atom[k], 0) / atoms.length);
    const radius = Math.max(...atoms.map((atom) => Math.hypot(...centre.map((each, k) => atom[k] - each)))) + 4;
    const { camera } = this.plugin.canvas3d, { position, target, up } = camera.getSnapshot();
    this.look(centre, radius, up, [0, 1, 2].map((k) => target[k] - position[k]), 400);
  }

  // the whole structure from the front; the page's coordinates are oriented already
  frame(durationMs) {
    this.look([0, 0, 0], extent(this.model) + CARTOON_MARGIN, [0, 1, 0], [0, 0, -1], durationMs);
  }

  look(target, radius, up, direction, durationMs) {
    const { canvas3d } = this.plugin;
    const snapshot = { ...canvas3d.camera.getInvariantFocus(target, radius, up, direction), radius };
    canvas3d.requestCameraReset({ durationMs, snapshot });
  }

  positionOf(atom) {
    return Array.from(this.model.positions.subarray(3 * atom, 3 * atom + 3));
  }

  spin(on) {
    this.plugin.canvas3d.setProps({ trackball: { animate: on ? { name: 'spin', params: { speed: 0.1, axis: [0, -1, 0] } } : { name: 'off', params: {} } } });
  }

  async picture() {
    const { viewportScreenshot } = this.plugin.helpers;
    return viewportScreenshot.getImageDataUri();
  }
}

// Mol* knows residues by the chains and numbers of the PDB text
const residueSchema = (i) => ({ auth_asym_id: chainOf(i).name, auth_seq_id: residueNumber(i) });
const firstResidues = new Map(chains.map(({ name, first }) => [name, first]));
const residueIndex = (unit, element) => {
  const { residues, residueAtomSegments, chains: chainTable, chainAtomSegments } = unit.model.atomicHierarchy;
  const chain = chainTable.auth_asym_id.value(chainAtomSegments.index[element]);
  return firstResidues.get(chain) + residues.auth_seq_id.value(residueAtomSegments.index[element]) - 1;
};

// a vector turned around an axis by an angle (Rodrigues' formula)
function turned(v, axis, angle) {
  const length = Math.hypot(...axis), [x, y, z] = axis.map((each) => each / length), c = Math.cos(angle), s = Math.sin(angle);
  const dot = x * v[0] + y * v[1] + z * v[2];
  const cross = [y * v[2] - z * v[1], z * v[0] - x * v[2], x * v[1] - y * v[0]];
  return v.map((each, k) => each * c + cross[k] * s + [x, y, z][k] * dot * (1 - c));
}
