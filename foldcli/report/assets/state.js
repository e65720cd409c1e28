// The state of the page (model, hovered residues, selection), its listeners, and shared helpers.

const data = JSON.parse(document.getElementById('data').textContent);
const size = data.sequence.length;
// name, index of the first residue, and number of residues of each chain
const chains = [];
for (const [name, length] of data.chains) {
  const before = chains[chains.length - 1];
  chains.push({ name, first: before ? before.first + before.length : 0, length });
}
const chainIndices = new Uint16Array(size);
chains.forEach(({ first, length }, i) => chainIndices.fill(i, first, first + length));
const severalChains = chains.length > 1;
const chainOf = (i) => chains[chainIndices[i]];
// number of a residue in its chain, from 1
const residueNumber = (i) => i - chainOf(i).first + 1;
const chainPrefix = (i) => (severalChains ? `${chainOf(i).name}:` : '');
const byId = (id) => document.getElementById(id);

// base64 → typed array; data and machine are assumed to be little-endian
function unpack(text, Kind) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}

for (const model of data.models) {
  model.plddt = Float32Array.from(unpack(model.plddt, Uint16Array), (value) => value / 100);
  if (model.pae) model.pae.cells = unpack(model.pae.cells, Uint8Array);
}
const state = { model: 0, hovered: [], selected: new Set() };
const listeners = [];
const onChange = (listener) => listeners.push(listener);
let pendingChanges = new Set();

// Change the state. Listeners are called once per animation frame, with the names of all changed properties.
function update(change) {
  Object.assign(state, change);
  if (pendingChanges.size === 0) {
    requestAnimationFrame(() => {
      const changed = pendingChanges;
      pendingChanges = new Set();
      for (const listener of listeners) listener(changed);
    });
  }
  for (const key of Object.keys(change)) pendingChanges.add(key);
}

const currentModel = () => data.models[state.model];

// set of residue indices of ranges [first, last], both included
function rangeSet(...ranges) {
  const residues = new Set();
  for (const [a, b] of ranges) {
    for (let i = Math.max(0, Math.min(a, b)); i <= Math.min(size - 1, Math.max(a, b)); i++) residues.add(i);
  }
  return residues;
}

// "10-25, 40" or, of several chains, "A:10-25, 40, B:3" → set of residue indices; null if the text is invalid
function parseRanges(text) {
  const ranges = [];
  let chain = chains[0];
  for (const part of text.split(',').map((each) => each.trim()).filter(Boolean)) {
    const match = /^(?:(\w+)\s*:\s*)?(\d+)(?:\s*[-–]\s*(\d+))?$/.exec(part);
    if (!match) return null;
    if (match[1] !== undefined) chain = chains.find(({ name }) => name === match[1]);
    const first = Number(match[2]), last = Number(match[3] ?? match[2]);
    if (!chain || first < 1 || last > chain.length || first > last) return null;
    ranges.push([chain.first + first - 1, chain.first + last - 1]);
  }
  return rangeSet(...ranges);
}

// residue indices → "10-25, 40" or "A:10-25, A:40, B:3"
function rangeText(residues) {
  const sorted = [...residues].sort((a, b) => a - b), parts = [];
  for (let i = 0; i < sorted.length; i++) {
    const first = sorted[i], number = residueNumber(first);
    while (sorted[i + 1] === sorted[i] + 1 && chainOf(sorted[i + 1]) === chainOf(first)) i++;
    parts.push(chainPrefix(first) + (sorted[i] === first ? number : `${number}-${residueNumber(sorted[i])}`));
  }
  return parts.join(', ');
}

const residueName = (i) => `${chainPrefix(i)}${data.sequence[i]}${residueNumber(i)}`;

function confidenceClass(plddt) {
  return data.palettes.confidence.findIndex(([lowest]) => plddt >= lowest || lowest === 0);
}

const rgb = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
const confidenceColours = data.palettes.confidence.map(([, , hex]) => rgb(hex));

// colour at a position from 0 to 1 in a list of colours
function interpolate(stops, position) {
  const scaled = Math.max(0, Math.min(1, position)) * (stops.length - 1);
  const low = Math.min(Math.floor(scaled), stops.length - 2), fraction = scaled - low;
  return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * fraction));
}
const paeStops = data.palettes.pae.map(rgb);
const chainColours = data.palettes.chains.map(rgb);
const identityStops = data.palettes.identity.map(rgb);

// a colour of the style sheet, for the current light or dark theme
const themeColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
