// The rest of the page: model selection, selection by residue number, and the sequence.

for (const input of document.querySelectorAll('input[name="model"]')) {
  input.addEventListener('change', () => update({ model: Number(input.value) }));
}

const residuesInput = byId('residues-input');
residuesInput.addEventListener('input', () => {
  const residues = parseRanges(residuesInput.value);
  residuesInput.setAttribute('aria-invalid', String(residues === null));
  if (residues === null) byId('selected').textContent = severalChains ? `expected residues of chains ${chains[0].name} to ${chains[chains.length - 1].name}, such as ${chains[0].name}:1-5, ${chains[1].name}:3` : `expected residues from 1 to ${size}, such as 10-25, 40`;
  else update({ selected: residues });
});
byId('clear').addEventListener('click', () => { residuesInput.value = ''; update({ selected: new Set() }); });

const letters = [];
for (const { first, length } of chains) for (let start = first; start < first + length; start += 10) {
  const ten = document.createElement('span'), number = document.createElement('small');
  ten.className = 'ten';
  number.textContent = chainPrefix(start) + residueNumber(start);
  ten.append(number);
  for (let i = start; i < Math.min(first + length, start + 10); i++) {
    const letter = document.createElement('b');
    letter.textContent = data.sequence[i];
    letter.dataset.residue = i;
    letters.push(letter);
    ten.append(letter);
  }
  byId('sequence').append(ten);
}
byId('sequence').addEventListener('pointermove', (event) => {
  const residue = event.target.dataset.residue;
  update({ hovered: residue === undefined ? [] : [Number(residue)] });
});
byId('sequence').addEventListener('pointerleave', () => update({ hovered: [] }));
byId('sequence').addEventListener('click', (event) => {
  const residue = event.target.dataset.residue;
  if (residue === undefined) return;
  const selected = new Set(state.selected);
  if (!selected.delete(Number(residue))) selected.add(Number(residue));
  update({ selected });
});

onChange((changed) => {
  if (changed.has('model')) showModel();
  if (!changed.has('selected')) return;
  letters.forEach((letter, i) => letter.classList.toggle('on', state.selected.has(i)));
  const text = rangeText(state.selected);
  if (document.activeElement !== residuesInput) {
    residuesInput.value = text;
    residuesInput.setAttribute('aria-invalid', 'false');
  }
  const residues = [...state.selected], mean = residues.reduce((sum, i) => sum + currentModel().plddt[i], 0) / residues.length;
  byId('selected').textContent = residues.length ? `${residues.length} selected, mean ${data.confidence} ${mean.toFixed(1)}` : '';
});

function showModel() {
  const { rank, tag, plddt, secondary } = currentModel(), classes = Array.from(plddt, confidenceClass);
  data.palettes.confidence.forEach((_, i) => {
    byId(`share-${i}`).textContent = ` ${Math.round((100 * classes.filter((each) => each === i).length) / size)} %`;
  });
  letters.forEach((letter, i) => {
    letter.style.borderColor = data.palettes.confidence[classes[i]][2];
    const ends = `${secondary[i] === secondary[i - 1] ? '' : ' first'}${secondary[i] === secondary[i + 1] ? '' : ' last'}`;
    letter.className = `${{ H: 'helix', G: 'helix', E: 'strand' }[secondary[i]] ?? 'coil'}${ends}${state.selected.has(i) ? ' on' : ''}`;
  });
  byId('canvas').setAttribute('aria-label', `Structure of rank ${rank} (${tag}), coloured by ${data.confidence}`);
}
showModel();

// from a web server, browsers save files that a page links to; from disk, they open them instead
if (location.protocol === 'file:') byId('download-note').textContent = 'The files are in the folder of this page.';
else {
  byId('download-all').hidden = false;
  byId('download-all').addEventListener('click', async () => {
    for (const link of document.querySelectorAll('#files a[download]')) {
      link.click();
      // browsers drop downloads that start at the same time
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
  });
}
