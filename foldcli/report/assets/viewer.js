// The viewer of a page: Mol* with the page's colours, how it is loaded, and the buttons and keys of its section.

const toHex = ([r, g, b]) => (r << 16) | (g << 8) | b;
let colourMode = 'confidence', view = null;
// [format, text, colour] of the structures that are superposed on the model shown
let superposed = () => [];

class MolstarView {
  static async create(container, ...settings) {
    const { PluginContext, DefaultPluginSpec } = molstar.lib.plugin;
    const spec = DefaultPluginSpec();
    // without the focus on clicked residues, labels and reports: the page has its own
    const used = /highlight-loci|camera-controls|structure-info|secondary-structure|valence/;
    spec.behaviors = spec.behaviors.filter((each) => used.test(each.transformer.id));
    const plugin = new PluginContext(spec);
    await plugin.init();
    if (!(await plugin.mountAsync(container)) || !plugin.canvas3d) throw new Error('no WebGL');
    return new this(plugin, ...settings);
  }

  constructor(plugin, fog) {
    Object.assign(this, { plugin, theme: 0, queue: Promise.resolve() });
    plugin.canvas3d.setProps({
      transparentBackground: true,
      camera: { helper: { axes: { name: 'off', params: {} } } },
      // cheap enough for browsers without a GPU
      multiSample: { mode: 'off' },
      cameraFog: { name: 'on', params: { intensity: fog } },
      postprocessing: { occlusion: { name: 'off', params: {} }, shadow: { name: 'off', params: {} }, antialiasing: { name: 'smaa', params: { edgeThreshold: 0.1, maxSearchSteps: 16 } }, outline: { name: 'on', params: { scale: 1, threshold: 0.33, color: 0x000000, includeTransparent: true } } },
    });
  }

  // colours by the name `name`; `colourAt(unit, element)` returns that of an atom
  addColours(name, colourAt) {
    const color = (location) => {
      if (location.kind === 'element-location') return colourAt(location.unit, location.element);
      if (location.kind === 'bond-location') return colourAt(location.aUnit, location.aUnit.elements[location.aIndex]);
      return 0x888888;
    };
    const theme = { granularity: 'group', color, description: '' };
    const getParams = () => ({ version: { type: 'value', defaultValue: 0 } });
    const factory = (_, props) => ({ ...theme, factory, props });
    this.plugin.representation.structure.themes.colorThemeRegistry.add({ name, label: name, category: 'Page', factory, getParams, defaultValues: { version: 0 }, isApplicable: () => true });
  }

  // `indexOf(unit, element)` of the first atom of what the pointer is on; null if there is none
  firstAtom(loci, indexOf) {
    if (loci.kind !== 'element-loci' || !loci.elements.length || loci.structure.model !== this.structure?.obj.data.model) return null;
    const { unit, element } = molstar.lib.structure.StructureElement.Loci.getFirstLocation(loci);
    return indexOf(unit, element);
  }

  // changes of Mol*'s state one after the other
  change(step) {
    this.queue = this.queue.then(step).catch((error) => console.error(error));
    return this.queue;
  }

  // replace the structure, and draw it with `build`; the camera stays where it is
  load(model, format, text, build) {
    return this.change(async () => {
      const { builders, canvas3d } = this.plugin, snapshot = this.structure && canvas3d.camera.getSnapshot();
      await this.plugin.clear();
      this.model = model;
      const raw = await builders.data.rawData({ data: text, label: 'model' });
      const trajectory = await builders.structure.parseTrajectory(raw, format);
      this.structure = await builders.structure.createStructure(await builders.structure.createModel(trajectory));
      await build(builders.structure);
      await this.superpose();
      if (snapshot) canvas3d.requestCameraReset({ durationMs: 0, snapshot });
      else this.frame(0);
    });
  }

  // draw the superposed structures instead of those drawn before
  async superpose() {
    const { builders } = this.plugin;
    for (const data of this.others ?? []) if (data.cell?.obj) await this.remove(data);
    this.others = [];
    for (const [format, text, colour] of superposed(this)) {
      const raw = await builders.data.rawData({ data: text, label: 'superposed' });
      this.others.push(raw);
      const trajectory = await builders.structure.parseTrajectory(raw, format);
      const structure = await builders.structure.createStructure(await builders.structure.createModel(trajectory));
      const polymer = await builders.structure.tryCreateComponentStatic(structure, 'polymer');
      if (polymer) await builders.structure.representation.addRepresentation(polymer, { type: 'cartoon', typeParams: { visuals: ['polymer-trace'], alpha: 0.7 }, color: 'uniform', colorParams: { value: colour } });
    }
  }

  async recolourParts(name, parts) {
    const color = { name, params: { version: ++this.theme } };
    for (const part of parts) await this.plugin.build().to(part).update((old) => ({ ...old, colorTheme: color })).commit();
  }

  // a component of the residues or atoms of a schema; null if it is empty
  component(items, name) {
    const bundle = molstar.lib.structure.StructureElement.Bundle.fromSchema(this.structure.obj.data, { items });
    const type = { name: 'bundle', params: bundle };
    return this.plugin.builders.structure.tryCreateComponent(this.structure, { type, nullIfEmpty: true, label: name }, name);
  }

  async remove(component) {
    if (component) await this.plugin.build().delete(component).commit();
  }

  mark(items) {
    if (!this.structure?.obj) return;
    const { lociHighlights } = this.plugin.managers.interactivity;
    if (items.length) lociHighlights.highlightOnly({ loci: molstar.lib.structure.StructureElement.Loci.fromSchema(this.structure.obj.data, { items }) }, false);
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

  reset() { return this.change(() => this.frame(200)); }

  // zoom to atoms, from the current direction
  approach(atoms) {
    const { centre, radius } = sphere(this.model, atoms), { position, target, up } = this.plugin.canvas3d.camera.getSnapshot();
    this.look(centre, radius, up, [0, 1, 2].map((k) => target[k] - position[k]), 400);
  }

  look(target, radius, up, direction, durationMs) {
    const { canvas3d } = this.plugin;
    const snapshot = { ...canvas3d.camera.getInvariantFocus(target, radius, up, direction), radius };
    canvas3d.requestCameraReset({ durationMs, snapshot });
  }

  async picture() { return this.plugin.helpers.viewportScreenshot.getImageDataUri(); }
}

// a vector turned around an axis by an angle (Rodrigues' formula)
function turned(v, axis, angle) {
  const length = Math.hypot(...axis), [x, y, z] = axis.map((each) => each / length), c = Math.cos(angle), s = Math.sin(angle);
  const dot = x * v[0] + y * v[1] + z * v[2];
  const cross = [y * v[2] - z * v[1], z * v[0] - x * v[2], x * v[1] - y * v[0]];
  return v.map((each, k) => each * c + cross[k] * s + [x, y, z][k] * dot * (1 - c));
}

// a script element, because pages from disk must not fetch
function loadScript(source) {
  return new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement('script'), { src: source, onload: resolve });
    script.onerror = () => reject(new Error(`${decodeURIComponent(source)} is not there. It belongs to the folder of results that this page comes from`));
    document.head.append(script);
  });
}

async function startMolstar(create) {
  const source = byId('viewer').dataset.script;
  if (!source) throw new Error(byId('viewer').dataset.missing);
  if (!document.createElement('canvas').getContext('webgl2')) throw new Error('this browser has no WebGL');
  await loadScript(source);
  const box = byId('cartoon');
  box.hidden = false;
  try {
    const started = await create(box);
    await started.show(currentModel());
    byId('tube').hidden = true;
    return started;
  } catch (error) {
    box.hidden = true;
    throw error;
  }
}

// Show a drawing, and Mol*'s as soon as it is loaded. `create(box)` returns the latter, `onStart` is called when it is shown.
function startViewer(drawing, [drawingName, name], create, onStart = () => {}) {
  view = drawing;
  const { dataset } = byId('viewer');
  dataset.drawn = drawingName;
  // the viewer in use, for the console of the browser
  Object.defineProperty(byId('viewer'), 'structure', { get: () => view });
  startMolstar(create).then((started) => {
    onStart();
    view = started;
    dataset.drawn = name;
    offerSuperposition();
    view.recolour();
  }).catch((error) => {
    byId('structure-problem').textContent = `A simple drawing is shown instead: ${error.message}.`;
  }).finally(() => { dataset.ready = ''; });
}

// Mol* alone draws several structures
function offerSuperposition() {
  const others = byId('show-others'), reference = byId('show-reference');
  others.parentNode.hidden = data.models.length < 2;
  reference.parentNode.hidden = !data.reference;
  superposed = (viewer) => [
    ...(others.checked ? data.models.filter((model) => model !== viewer.model).map((model) => [...viewer.file(model), 0xa0a0a0]) : []),
    ...(reference.checked ? [['pdb', data.reference, 0xe07000]] : []),
  ];
  for (const box of [others, reference]) box.addEventListener('change', () => view.change(() => view.superpose()));
}

// Buttons, keys and the menu of colours; `onTouch` is called when the structure is touched.
function addControls(recolour, hover, onTouch = () => {}) {
  const canvas = byId('canvas');
  canvas.addEventListener('keydown', (event) => {
    const step = arrow(event), small = Math.PI / 18;
    if (step) view.rotate(step[0] ? 'y' : 'x', (step[0] || step[1]) * small);
    else if (event.key === '+' || event.key === '=') view.zoom(1.2);
    else if (event.key === '-') view.zoom(1 / 1.2);
    else if (event.key === '0') view.reset();
    else return;
    event.preventDefault();
  });
  canvas.addEventListener('pointerdown', () => { canvas.focus({ preventScroll: true }); onTouch(); });
  // the wheel scrolls the page until the structure has been clicked
  canvas.addEventListener('wheel', (event) => {
    if (document.activeElement !== canvas) event.stopPropagation();
  }, { capture: true });
  canvas.addEventListener('pointerleave', () => hover(null));
  byId('colour-mode').addEventListener('change', (event) => {
    colourMode = event.target.value;
    for (const legend of document.querySelectorAll('#structure [data-legend]')) legend.hidden = legend.dataset.legend !== colourMode;
    recolour();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolour);
  byId('zoom-in').addEventListener('click', () => view.zoom(1.25));
  byId('zoom-out').addEventListener('click', () => view.zoom(1 / 1.25));
  byId('reset').addEventListener('click', () => { onTouch(); view.reset(); });
  byId('save-picture').addEventListener('click', async () => {
    download(await view.picture(), `${data.name}_rank_${currentModel().rank}.png`);
  });
}

function addChainLegend(labels) {
  labels.forEach((label, i) => {
    const entry = document.createElement('li'), swatch = document.createElement('span');
    swatch.className = 'swatch';
    swatch.style.background = data.palettes.chains[i % chainColours.length];
    entry.append(swatch, label);
    byId('chain-legend').append(entry);
  });
}

function download(url, name) {
  Object.assign(document.createElement('a'), { href: url, download: name }).click();
}
