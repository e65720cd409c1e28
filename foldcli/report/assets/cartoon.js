// A cartoon drawn by Mol*: helices, strands and coils, and the side chains of selected residues.

// more side chains at once are slow and hide each other
const MAX_SIDE_CHAINS = 300;
// Å that strands and the ends of helices are drawn beyond Cα
const CARTOON_MARGIN = 2;
const elementColours = { N: 0x3050f8, O: 0xe0200d, S: 0xe6b800 };

class Cartoon extends MolstarView {
  constructor(plugin, colourOf, onHover, onPick) {
    super(plugin, 20);
    Object.assign(this, { selected: [], colourOf });
    // Mol* colours each atom by its residue; in side chains, nitrogen, oxygen and sulfur have colours of their own
    const colourAt = (unit, element) => toHex(colourOf(residueIndex(unit, element), this.model));
    this.addColours('page', colourAt);
    this.addColours('page-elements', (unit, element) => elementColours[unit.model.atomicHierarchy.atoms.type_symbol.value(element)] ?? colourAt(unit, element));
    const { hover, click } = plugin.behaviors.interaction;
    hover.subscribe(({ current }) => onHover(this.firstAtom(current.loci, residueIndex)));
    click.subscribe(({ current, button }) => { if (button === 1) onPick(this.firstAtom(current.loci, residueIndex)); });
  }

  file(model) { return ['pdb', pdbText(model)]; }

  show(model) {
    return this.load(model, ...this.file(model), async (builder) => {
      const polymer = await builder.tryCreateComponentStatic(this.structure, 'polymer');
      this.cartoon = polymer && await builder.representation.addRepresentation(polymer, {
        type: 'cartoon', typeParams: { quality: size > 1500 ? 'medium' : 'high', visuals: ['polymer-trace'] }, color: 'page',
      });
      await this.showSideChains();
    });
  }

  recolour() {
    return this.change(async () => {
      this.selected = [...state.selected];
      if (!this.structure) return;
      await this.recolourParts('page', this.cartoon ? [this.cartoon] : []);
      await this.showSideChains();
    });
  }

  async showSideChains() {
    await this.remove(this.sideChains);
    this.sideChains = null;
    const residues = this.selected.filter((i) => this.model.residues[i].ca >= 0);
    if (!residues.length || residues.length > MAX_SIDE_CHAINS) return;
    const items = residues.flatMap((i) => {
      // with Cα, where the side chain joins the cartoon, and proline's nitrogen, which closes its ring
      const atoms = this.model.residues[i].atoms.filter((atom) => !['N', 'C', 'O', 'OXT'].includes(atom) || (atom === 'N' && this.model.residues[i].name === 'PRO'));
      return atoms.map((atom) => ({ ...residueSchema(i), label_atom_id: atom }));
    });
    const component = await this.component(items, 'side-chains');
    if (!component) return;
    this.sideChains = component.ref;
    await this.plugin.builders.structure.representation.addRepresentation(component, {
      type: 'ball-and-stick', typeParams: { sizeFactor: 0.22, multipleBonds: 'off' }, color: 'page-elements',
    });
  }

  highlight(residues) { this.mark(residues.map(residueSchema)); }

  focus(residues) {
    const atoms = residues.flatMap((i) => this.model.residues[i].atoms.map((_, k) => this.model.residues[i].first + k));
    if (atoms.length) this.approach(atoms);
  }

  // the whole structure from the front; the page's coordinates are oriented already
  frame(durationMs) {
    this.look([0, 0, 0], extent(this.model) + CARTOON_MARGIN, [0, 1, 0], [0, 0, -1], durationMs);
  }

  spin(on) {
    this.plugin.canvas3d.setProps({ trackball: { animate: on ? { name: 'spin', params: { speed: 0.1, axis: [0, -1, 0] } } : { name: 'off', params: {} } } });
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
