// The atoms of the models: positions, names, and the text of a PDB file.

const COIL = '-', STRAND = 'E';
const structureNames = { H: 'α-helix', G: '3-10 helix', E: 'strand', '-': 'coil' };

for (const model of data.models) {
  const types = unpack(model.types, Uint16Array), steps = unpack(model.atoms, Int16Array);
  model.positions = Float32Array.from(steps, (value) => value * data.step);
  // name and atom names of each residue, index of its first atom, and of its Cα (−1 if it has none)
  model.residues = Array.from(types, (type) => ({ name: data.residueTypes[type][0], atoms: data.residueTypes[type][1].split(' ').filter(Boolean) }));
  let first = 0;
  for (const residue of model.residues) {
    residue.first = first;
    residue.ca = residue.atoms.includes('CA') ? first + residue.atoms.indexOf('CA') : -1;
    first += residue.atoms.length;
  }
}
// indices of the residues that have coordinates in the best model
const present = data.models[0].residues.flatMap((residue, i) => (residue.ca < 0 ? [] : [i]));

// largest distance of a residue of a model from the centre of the page's coordinates, Å
function extent(model) {
  const distances = present.map((i) => 3 * Math.max(0, model.residues[i].ca)).map((at) => Math.hypot(...model.positions.subarray(at, at + 3)));
  return distances.reduce((largest, each) => Math.max(largest, each), 4);
}

// runs of equal secondary structure, [{ letter, first, last }], in residue indices
function segments(model) {
  const runs = [];
  for (let i = 0; i < size; i++) {
    const letter = model.secondary[i], run = runs[runs.length - 1];
    if (run && run.letter === letter && chainOf(run.last) === chainOf(i)) run.last = i;
    else runs.push({ letter, first: i, last: i });
  }
  return runs;
}

function pdbText(model) {
  const right = (value, width) => String(value).padStart(width), lines = [];
  // chain and number of a residue
  const place = (i, width) => chainOf(i).name + right(residueNumber(i), width);
  const end = (i) => `${right(model.residues[i].name, 3)} ${place(i, 5)}`;
  const helices = [], strands = [];
  for (const { letter, first, last } of segments(model)) {
    if (letter === COIL || model.residues[first].ca < 0 || model.residues[last].ca < 0) continue;
    if (letter === STRAND) {
      const a = end(first), b = end(last);
      strands.push(`SHEET    1 ${right(strands.length % 999 + 1, 3)} 1 ${a.slice(0, 5)}${a.slice(6)}  ${b.slice(0, 5)}${b.slice(6)}  0`);
    } else {
      const number = right(helices.length % 999 + 1, 3);
      helices.push(`HELIX  ${number} ${number} ${end(first)}  ${end(last)} ${letter === 'G' ? ' 5' : ' 1'}${' '.repeat(30)} ${right(last - first + 1, 5)}`);
    }
  }
  lines.push(...helices, ...strands);
  let serial = 0;
  model.residues.forEach((residue, i) => {
    if (i && chainOf(i) !== chainOf(i - 1)) lines.push('TER');
    residue.atoms.forEach((atom, k) => {
      const position = model.positions.subarray(3 * (residue.first + k), 3 * (residue.first + k) + 3);
      const xyz = Array.from(position, (value) => right(value.toFixed(3), 8)).join('');
      const name = atom.length < 4 ? ` ${atom.padEnd(3)}` : atom;
      lines.push(`ATOM  ${right(++serial % 100000, 5)} ${name} ${right(residue.name, 3)} ${place(i, 4)}    ${xyz}  1.00${right(model.plddt[i].toFixed(2), 6)}          ${right(atom[0], 2)}`);
    });
  });
  return `${lines.join('\n')}\nTER\nEND\n`;
}
