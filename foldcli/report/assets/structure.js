// The structure: the trace at once, and Mol*'s cartoon as soon as it is loaded; colours, buttons and keys.

const residueColours = {
  confidence: (residue, model) => confidenceColours[confidenceClass(model.plddt[residue])],
  // light to dark along the chain, readable without colour vision
  position: (residue) => interpolate([[253, 231, 37], [94, 201, 98], [33, 145, 140], [59, 82, 139], [68, 1, 84]], (residueNumber(residue) - 1) / Math.max(1, chainOf(residue).length - 1)),
  chain: (residue) => chainColours[chainIndices[residue] % chainColours.length],
  secondary: (residue, model) => rgb(themeColour(`structure-${{ H: 'helix', G: 'helix', E: 'strand' }[model.secondary[residue]] ?? 'coil'}`)),
};
let dimmed = rgb(themeColour('dim'));

// residues outside the selection are dimmed
function residueColour(residue, model) {
  return state.selected.size === 0 || state.selected.has(residue) ? residueColours[colourMode](residue, model) : dimmed;
}

function recolour() {
  dimmed = rgb(themeColour('dim'));
  view.recolour();
}

const hover = (residue) => update({ hovered: residue === null ? [] : [residue] });

function pick(residue) {
  if (residue === null) return;
  const selected = new Set(state.selected);
  if (!selected.delete(residue)) selected.add(residue);
  update({ selected });
}

async function createCartoon(box) {
  // the format that Mol* gets has one column for the chain
  if (chains.some(({ name }) => name.length > 1)) throw new Error('it has more chains than the PDB format can name');
  return Cartoon.create(box, residueColour, hover, pick);
}

if (present.length) {
  const spinButton = byId('spin');
  const spin = (on) => {
    view.spin(on);
    spinButton.setAttribute('aria-pressed', String(on));
  };
  startViewer(new Tube(byId('tube'), residueColour, hover, pick), ['tube', 'cartoon'], createCartoon, () => spin(false));
  addControls(recolour, hover, () => spin(false));
  addChainLegend(severalChains ? chains.map(({ name }) => `chain ${name}`) : []);
  onChange((changed) => {
    if (changed.has('model')) view.show(currentModel());
    if (changed.has('selected') || changed.has('model')) recolour();
    byId('focus').disabled = state.selected.size === 0;
    view.highlight([...new Set(state.hovered)]);
    const residues = [...new Set(state.hovered)].map((i) => `${residueName(i)}, ${structureNames[currentModel().secondary[i]]}, ${data.confidence} ${currentModel().plddt[i].toFixed(1)}`);
    byId('structure-readout').textContent = residues.join(' · ');
  });
  spinButton.addEventListener('click', () => spin(spinButton.getAttribute('aria-pressed') !== 'true'));
  byId('focus').addEventListener('click', () => view.focus([...state.selected]));
  byId('save-pdb').disabled = chains.some(({ name }) => name.length > 1);
  byId('save-pdb').addEventListener('click', () => {
    const url = URL.createObjectURL(new Blob([pdbText(currentModel())], { type: 'chemical/x-pdb' }));
    download(url, `${data.name}_rank_${currentModel().rank}.pdb`);
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  });
}
