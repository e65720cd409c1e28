// What the page shows (model, place pointed at, selection) and who is told when it changes.

const data = JSON.parse(document.getElementById('data').textContent);
const size = data.sequence.length;
const byId = (id) => document.getElementById(id);

// base64 → typed array; all are little-endian, as every machine with a browser is
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
// residues that have coordinates, from 0
const present = data.present === null ? Uint32Array.from({ length: size }, (_, i) => i) : unpack(data.present, Uint16Array);

const state = { model: 0, pointed: [], selected: new Set() };
const listeners = [];
const onChange = (listener) => listeners.push(listener);
let waiting = new Set();

// many changes between two frames of the screen are told once
function update(change) {
  Object.assign(state, change);
  if (waiting.size === 0) {
    requestAnimationFrame(() => {
      const changed = waiting;
      waiting = new Set();
      for (const listener of listeners) listener(changed);
    });
  }
  for (const key of Object.keys(change)) waiting.add(key);
}

const current = () => data.models[state.model];

// residues of the ranges [first, last], from 0, both included
function rangeSet(...ranges) {
  const chosen = new Set();
  for (const [a, b] of ranges) {
    for (let i = Math.max(0, Math.min(a, b)); i <= Math.min(size - 1, Math.max(a, b)); i++) chosen.add(i);
  }
  return chosen;
}

// "10-25, 40" → residues from 0; null where it cannot be read
function parseRanges(text) {
  const ranges = [];
  for (const part of text.split(',').map((each) => each.trim()).filter(Boolean)) {
    const match = /^(\d+)(?:\s*[-–]\s*(\d+))?$/.exec(part);
    if (!match) return null;
    const first = Number(match[1]), last = Number(match[2] ?? match[1]);
    if (first < 1 || last > size || first > last) return null;
    ranges.push([first - 1, last - 1]);
  }
  return rangeSet(...ranges);
}

// residues from 0 → "10-25, 40"
function rangeText(chosen) {
  const sorted = [...chosen].sort((a, b) => a - b), parts = [];
  for (let i = 0; i < sorted.length; i++) {
    const first = sorted[i];
    while (sorted[i + 1] === sorted[i] + 1) i++;
    parts.push(sorted[i] === first ? `${first + 1}` : `${first + 1}-${sorted[i] + 1}`);
  }
  return parts.join(', ');
}

const residueName = (i) => `${data.sequence[i]}${i + 1}`;

function confidenceClass(plddt) {
  return data.palettes.confidence.findIndex(([lowest]) => plddt >= lowest || lowest === 0);
}

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const confidenceColours = data.palettes.confidence.map(([, , hex]) => rgb(hex));

// a colour between those of a list, for 0 to 1
function between(stops, share) {
  const at = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2), part = at - low;
  return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * part));
}
const paeStops = data.palettes.pae.map(rgb);
const identityStops = data.palettes.identity.map(rgb);

// a colour of the style sheet, which depends on the reader's theme
const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
