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

const allAtoms = Array.from({ length: atomCount }, (_, i) => i);

// Traces of polymers and bonds of ligands, with names; for browsers without WebGL and pages without their folder.
class Sketch extends Drawing {
  constructor(container) {
    super(container);
    this.followPointer(hoverAtom, () => {});
  }

  reset() {
    this.target = null;
    super.reset();
  }

  focus(atoms) {
    Object.assign(this, { target: atoms, scale: 1 });
    this.draw();
  }

  frame() { return { ...sphere(this.model, this.target ?? allAtoms), margin: 8 }; }

  places() { return allAtoms.map((atom) => [atom, atomPosition(this.model, atom)]); }

  paint(context, unit) {
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
    const marked = this.highlighted.length ? new Set(this.highlighted) : state.selected;
    for (const [a, b] of drawn) {
      const polymer = isPolymer(residues[atomResidues[a.index]].chain), middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
      const thickness = Math.max(1.5, Math.min(10, (polymer ? 1.2 : a === b ? 1.6 : 0.45) * unit));
      for (const [from, outline] of [[a, true], [b, true], [a, false], [b, false]]) {
        context.strokeStyle = outline ? (marked.has(atomTokens[from.index]) ? themeColour('mark') : themeColour('ink')) : `rgb(${atomColour(from.index, this.model).join()})`;
        context.lineWidth = thickness + (outline ? (marked.has(atomTokens[from.index]) ? 4 : 1.5) : 0);
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
class Molecules extends MolstarView {
  constructor(plugin) {
    super(plugin, 15);
    this.addColours('molecules', (unit, element) => toHex(atomColour(rowOf(unit, element), this.model)));
    plugin.behaviors.interaction.hover.subscribe(({ current }) => hoverAtom(this.firstAtom(current.loci, rowOf)));
  }

  file(model) { return ['mmcif', cifText(model)]; }

  show(model) {
    return this.load(model, ...this.file(model), async (builder) => {
      Object.assign(this, { parts: [], around: null });
      const sticks = { type: 'ball-and-stick', typeParams: { sizeFactor: 0.22 } };
      for (const [kind, shown] of [['polymer', { type: 'cartoon' }], ['non-standard', sticks], ['ligand', sticks], ['branched', sticks], ['ion', { type: 'ball-and-stick', typeParams: { sizeFactor: 0.6 } }], ['lipid', sticks]]) {
        const component = await builder.tryCreateComponentStatic(this.structure, kind);
        if (!component) continue;
        this.parts.push(await builder.representation.addRepresentation(component, { ...shown, color: 'molecules' }));
        if (kind !== 'non-standard') await this.label(component, kind === 'polymer' ? 'chain' : 'residue');
      }
    });
  }

  // names of the chains or residues of a component
  label(component, level, residueScale = 2) {
    const [ink, ground] = ['ink', 'plot'].map((name) => parseInt(themeColour(name).slice(1), 16));
    const typeParams = { level, residueScale, chainScale: 3.5, borderWidth: 0.25, borderColor: ground };
    return this.plugin.builders.structure.representation.addRepresentation(component, { type: 'label', typeParams, color: 'uniform', colorParams: { value: ink } });
  }

  recolour() { return this.change(() => this.recolourParts('molecules', this.parts)); }

  // atoms → Mol*'s selection of their residues, or of atoms of ligands
  schema(atoms) {
    const items = new Map();
    for (const atom of atoms) {
      const { chain, number } = residues[atomResidues[atom]];
      const item = { auth_asym_id: chain, auth_seq_id: number, ...(isPolymer(chain) ? {} : { label_atom_id: data.atomNames[atom] }) };
      items.set(JSON.stringify(item), item);
    }
    return [...items.values()];
  }

  highlight(tokens) {
    const marked = new Set(tokens.length ? tokens : state.selected);
    this.mark(this.schema(allAtoms.filter((atom) => marked.has(atomTokens[atom]))));
  }

  // zoom to atoms of a ligand, and show the residues around it
  focus(atoms, around) {
    return this.change(async () => {
      await this.remove(this.around);
      this.around = null;
      const component = around.length ? await this.component(this.schema(around), 'around') : null;
      if (component) {
        this.around = component.ref;
        await this.plugin.builders.structure.representation.addRepresentation(component, { type: 'ball-and-stick', typeParams: { sizeFactor: 0.15 }, color: 'molecules' });
        await this.label(component, 'residue', 1);
      }
      this.approach(atoms);
    });
  }

  frame(durationMs) {
    const { centre, radius } = sphere(this.model, allAtoms);
    this.look(centre, radius, [0, 1, 0], [0, 0, -1], durationMs);
  }
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

startViewer(new Sketch(byId('tube')), ['sketch', 'molecules'], (box) => Molecules.create(box));
addControls(() => view.recolour(), hoverAtom);
addChainLegend(chains.map(({ name }, i) => `${name}: ${data.kinds[i]}`));
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
