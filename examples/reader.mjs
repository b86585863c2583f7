// A reader of Germline's genomes, format version 1, written from the page genome.md alone.
//
//     node reader.mjs FILE...              for each file one line: ID SHA256-OF-WEIGHTS FILE
//     node reader.mjs --weights OUT FILE   writes the weights to OUT as little-endian float32
//
// It reads JSON files (Birth roots) and safetensors files (Snapshot roots); Foreign roots it names
// but does not decode. It refuses in one sentence, names the field, and ends with code 2. It needs
// Node.js 18 or newer and nothing else. The functions stand in the order of the page's sections.

import { createHash } from "node:crypto";
import { readFileSync, realpathSync, statSync, writeFileSync } from "node:fs";

const MAX_WEIGHTS = 2 ** 28;
const MAX_JSON = 2 ** 24;
const MAX_ENTRIES = 131072; // genes of a genome, and entries of a Foreign payload

function demand(good, sentence) {
  if (!good) throw Object.assign(new Error(sentence), { refused: true });
}

const sha256 = (data) => createHash("sha256").update(data).digest("hex");
const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
const last = (list) => list[list.length - 1];
const quote = (x) => JSON.stringify(x).slice(0, 80);
const isWhole = (x, low, high) => Number.isSafeInteger(x) && x >= low && x <= high;
const isSeed = (x) => isWhole(x, 0, 2 ** 32 - 1);
const isText = (x) => typeof x === "string";
const isObject = (x) => typeof x === "object" && x !== null && !Array.isArray(x);
const isList = (x, most, test) => Array.isArray(x) && x.length <= most && x.every(test);
const oneOf = (...values) => (x) => values.includes(x);
const matching = (pattern) => (x) => isText(x) && pattern.test(x);
const having = (tests) => (x) => isObject(x) &&
  Object.keys(x).sort().join() === Object.keys(tests).sort().join() &&
  Object.keys(x).every((key) => tests[key](x[key]));

// Every field must have a test and pass it; all must be there but those that may be absent.
function checkFields(object, field, tests, absent = []) {
  demand(isObject(object), `${field}: not an object`);
  for (const key of Object.keys(object)) {
    demand(Object.hasOwn(tests, key), `${field}: ${quote(key)} is not known here`);
    demand(tests[key](object[key]), `${field}.${key}: malformed or out of bounds`);
  }
  for (const key of Object.keys(tests)) {
    demand(absent.includes(key) || Object.hasOwn(object, key), `${field}: ${key} is missing`);
  }
}

// 2. Noise

const words = new Int32Array(2); // what threefry leaves; a new array for every weight would be slow

function threefry(seed, stream, index) {
  let a = seed | 0;
  let b = stream | 0;
  let c = a ^ b ^ 0x1bd11bda;
  let x0 = (index + a) | 0;
  let x1 = b;
  for (let g = 0; g < 5; g += 1) {
    if (g % 2 === 0) {
      x0 = (x0 + x1) | 0; x1 = ((x1 << 13) | (x1 >>> 19)) ^ x0;
      x0 = (x0 + x1) | 0; x1 = ((x1 << 15) | (x1 >>> 17)) ^ x0;
      x0 = (x0 + x1) | 0; x1 = ((x1 << 26) | (x1 >>> 6)) ^ x0;
      x0 = (x0 + x1) | 0; x1 = ((x1 << 6) | (x1 >>> 26)) ^ x0;
    } else {
      x0 = (x0 + x1) | 0; x1 = ((x1 << 17) | (x1 >>> 15)) ^ x0;
      x0 = (x0 + x1) | 0; x1 = ((x1 << 29) | (x1 >>> 3)) ^ x0;
      x0 = (x0 + x1) | 0; x1 = ((x1 << 16) | (x1 >>> 16)) ^ x0;
      x0 = (x0 + x1) | 0; x1 = ((x1 << 24) | (x1 >>> 8)) ^ x0;
    }
    x0 = (x0 + b) | 0;
    x1 = (x1 + c + g + 1) | 0;
    const first = a; // the key turns round, which spares the remainders by 3
    a = b; b = c; c = first;
  }
  words[0] = x0;
  words[1] = x1;
}

export function noiseWords(seed, stream, index) {
  threefry(seed, stream, index);
  return [words[0] >>> 0, words[1] >>> 0];
}

function popcount(x) {
  const pairs = x - ((x >>> 1) & 0x55555555);
  const fours = (pairs & 0x33333333) + ((pairs >>> 2) & 0x33333333);
  return Math.imul((fours + (fours >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}

// Four times z, a whole number; the scales are divided by 4 instead, which is as exact.
export function fourZ(seed, stream, index) {
  threefry(seed, stream, index);
  return popcount(words[0]) + popcount(words[1]) - 32;
}

// 3. Scales

const view = new DataView(new ArrayBuffer(8));

// 45 of the 53 bits of a float64 go. A carry runs on into the exponent, where it belongs.
export function bf16(x) {
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const odd = (bits >> 45n) & 1n;
  view.setBigUint64(0, ((bits + (1n << 44n) - 1n + odd) >> 45n) << 45n);
  return view.getFloat64(0);
}

export function scaleBits(scale) {
  view.setFloat32(0, scale);
  return view.getUint16(0).toString(16).padStart(4, "0");
}

function isScale(x) {
  const size = Number.isFinite(x) ? Math.abs(bf16(x)) : 0;
  return size >= 2 ** -64 && size <= 2 ** 16;
}

// 4. Layout

// `heads` is how many there are, 0 for a tensor without; `rows` and `columns` are those of the
// matrix, or of the vector, that each head is.
function tensor(name, inner, fanIn, gain, heads) {
  return { name, layer: name.slice(0, name.lastIndexOf("/")), fanIn, gain, heads,
    shape: heads ? [heads, ...inner] : inner, isMatrix: inner.length > 1,
    rows: product(inner.slice(0, -1)), columns: last(inner) };
}

// Gives the tensors their places in θ, and checks their sizes before anything is allocated.
function place(tensors) {
  const layout = { tensors, weights: 0, heads: 0, left: 0, right: 0 };
  demand(tensors.length <= 4096, "policy.settings: more than 4096 tensors");
  for (const t of tensors) {
    Object.assign(t, { start: layout.weights, size: product(t.shape) });
    layout.weights += t.size;
    demand(layout.weights <= MAX_WEIGHTS, "policy.settings: more than 2^28 weights");
    t.scale = t.gain && bf16(t.gain / Math.sqrt(t.fanIn));
    layout.heads = Math.max(layout.heads, t.heads);
    if (t.isMatrix) { // what a lowrank:1 reads of its two streams
      layout.left += t.rows * (t.heads || 1);
      layout.right += t.columns * (t.heads || 1);
    }
  }
  return layout;
}

export function layoutText({ tensors }) {
  const lines = tensors.map((t) => ["tensor", t.name, t.shape.join("x"), t.fanIn,
    scaleBits(t.scale), t.heads ? "heads" : "-", t.step ?? "-"].join(" "));
  return ["germline layout 1", ...lines, ""].join("\n");
}

function layersOf(tensors) {
  const layers = new Map(tensors.map((t) => [t.layer, []]));
  for (const t of tensors) layers.get(t.layer).push(t);
  return [...layers.values()];
}

// 5. Networks

function layer(name, shape, { gain = 1, heads = 0, normalised = false } = {}) {
  const fanIn = product(shape.slice(0, -1));
  const vector = (part) => tensor(`${name}/${part}`, [last(shape)], fanIn, 0, heads);
  const weight = tensor(`${name}/weight`, shape, fanIn, gain, heads);
  return normalised ? [weight, vector("gain"), vector("bias")] : [weight, vector("bias")];
}

const outLayer = (inputs, outputs) => layer("out", [inputs, outputs], { gain: 0.1 });

function mlp(s, outputs, heads) {
  const sizes = [s.inputs, ...s.hidden, outputs];
  return sizes.slice(1).flatMap((out, i) =>
    layer(`dense${i + 1}`, [sizes[i], out], { heads, gain: i === s.hidden.length ? 0.1 : 1 }));
}

const hidden = (s, name, shape) => layer(name, shape, { normalised: s.normalise === "virtual" });

// The convolutions, and how many numbers leave them.
function convolutions({ observation, filters, kernels, strides, ...s }) {
  demand(kernels.length === filters.length && strides.length === filters.length,
    "policy.settings: filters, kernels and strides are not equally many");
  let [rows, columns, channels] = observation;
  const tensors = filters.flatMap((count, i) => {
    const [k, stride, entering] = [kernels[i], strides[i], channels];
    const side = (n) => (s.padding === "same" ? Math.ceil(n / stride)
      : Math.floor((n - k) / stride) + 1);
    [rows, columns, channels] = [side(rows), side(columns), count];
    demand(rows > 0 && columns > 0, `policy.settings: conv${i + 1} leaves no pixels`);
    return hidden(s, `conv${i + 1}`, [k, k, entering, count]);
  });
  return [tensors, rows * columns * channels];
}

function conv(s, name = (i) => `dense${i}`) {
  demand(s.observation.length === 3, "policy.settings.observation: not three numbers");
  const [tensors, flat] = convolutions(s);
  const sizes = [flat, ...s.hidden];
  const dense = s.hidden.flatMap((out, i) => hidden(s, name(i + 1), [sizes[i], out]));
  return [...tensors, ...dense, ...outLayer(last(sizes), s.actions)];
}

function dqn(s) {
  return conv({ ...s, observation: [84, 84, 4], filters: [32, 64, 64], kernels: [8, 4, 3],
    strides: [4, 2, 1], hidden: [512] }, () => "dense");
}

function convLstm(s) {
  const [tensors, flat] = convolutions({ ...s, observation: [42, 42, 1], padding: "same",
    filters: Array(4).fill(s.filters), kernels: [3, 3, 3, 3], strides: [2, 2, 2, 2] });
  return [...tensors, ...hidden(s, "lstm", [flat + s.units, 4 * s.units]),
    ...outLayer(s.units, s.actions)];
}

function gru(s) {
  return [...layer("gates", [s.inputs + s.units, 2 * s.units]),
    ...layer("candidate", [s.inputs + s.units, s.units]), ...outLayer(s.units, s.outputs)];
}

function memory(s) {
  const vector = s.similarity === "cosine"
    ? [tensor("vector/value", [s.inputs], s.inputs, 1, s.heads)]
    : layer("vector", [s.inputs, 1], { heads: s.heads });
  return [...vector, tensor("answer/value", [s.outputs], s.inputs, 1, s.heads)];
}

// Of every policy the settings with their defaults (which also say the kind), those that it can
// have besides `head` and `normalise`, and its tensors.
const STEPS = ["steps", "shifts"];
const POLICIES = new Map([
  ["mlp", [{ inputs: 4, hidden: [64, 64], outputs: 2 }, ["activation", ...STEPS],
    (s) => mlp(s, s.outputs, 0)]],
  ["dqn", [{ actions: 18, padding: "same" }, STEPS, dqn]],
  ["conv", [{ observation: [84, 84, 4], filters: [16, 32], kernels: [8, 4], strides: [4, 2],
    hidden: [256], actions: 18, padding: "valid" }, STEPS, (s) => conv(s)]],
  ["conv-lstm", [{ actions: 18, filters: 32, units: 256 }, [], convLstm]],
  ["gru", [{ inputs: 4, units: 32, outputs: 2 }, [], gru]],
  ["memory", [{ heads: 128, inputs: 64, outputs: 10 }, ["similarity", "born", ...STEPS], memory]],
  ["ensemble", [{ members: 16, inputs: 4, hidden: [16], outputs: 2 }, ["born", ...STEPS],
    (s) => mlp(s, s.outputs + 1, s.members)]],
]);
const isSize = (x) => isWhole(x, 1, MAX_WEIGHTS);
const isSteps = (x) => isList(x, 1024, Number.isSafeInteger);
const TESTS = {
  padding: oneOf("same", "valid"), similarity: oneOf("cosine"), born: oneOf("empty"),
  head: oneOf("continuous"), activation: oneOf("tanh"), normalise: oneOf("observations", "virtual"),
  steps: isSteps, shifts: isSteps,
};

export function makeLayout(name, settings) {
  demand(POLICIES.has(name), `policy.name: ${quote(name)} is not known here`);
  const [defaults, further, build] = POLICIES.get(name);
  const known = [...Object.keys(defaults), ...further, "head", "normalise"];
  const test = (key) => TESTS[key] ??
    (Array.isArray(defaults[key]) ? (x) => isList(x, 1024, isSize) : isSize);
  const tests = Object.fromEntries(known.map((key) => [key, test(key)]));
  checkFields(settings, "policy.settings", tests, known);
  demand(settings.normalise !== "virtual" || /^(dqn|conv|conv-lstm)$/.test(name),
    `policy.settings.normalise: ${name} has no layers that are normalised`);
  const tensors = build({ ...defaults, ...settings });
  if (settings.born === "empty") for (const t of tensors) t.gain = 0;
  if (settings.steps || settings.shifts) addSteps(layersOf(tensors), settings);
  return place(tensors);
}

function addSteps(layers, { steps = [], shifts = [] }) {
  demand(steps.length === layers.length && shifts.length === layers.length,
    "policy.settings: steps and shifts have not one entry per layer each");
  let unit = -7;
  layers.forEach((tensors, i) => {
    for (const t of tensors) {
      t.step = steps[i] + (t.name.endsWith("/bias") ? unit : 0);
      demand(isWhole(t.step, -64, 16), `policy.settings.steps: ${t.name} is out of bounds`);
    }
    unit += steps[i] + shifts[i]; // a layer without matrices has no bias, nor has any after it
  });
}

// 6. Roots

// Weights are hashed, read and written as the memory of a Float32Array.
const IS_LITTLE = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;

function birth(layout, seed) {
  const theta = new Float32Array(layout.weights);
  for (const t of layout.tensors) if (t.scale) move(theta, t.start, t.size, seed, t.scale);
  return theta;
}

function snapshot(layout, hash, carried) {
  demand(carried, "root.kind: a Snapshot has its weights in a safetensors file");
  demand(sha256(carried) === hash, "root.sha256: the weights have another hash");
  const theta = new Float32Array(layout.weights);
  Buffer.from(theta.buffer).set(carried);
  const isGood = (bits) => bits === 0 || ((bits + 0x00800000) & 0x7f000000) !== 0;
  demand(new Uint32Array(theta.buffer).every(isGood),
    "root: a weight is NaN, infinite, subnormal or -0");
  return theta;
}

// 7. Genes

// θ and the product are float32 numbers. The sum is rounded to float64 and, as it is stored, to
// float32; with 53 bits in between, at least 2·24 + 2, that is the same as rounding once.
function move(theta, start, size, seed, sigma) {
  const quarter = sigma / 4;
  for (let i = start; i < start + size; i += 1) theta[i] += quarter * fourZ(seed, 0, i);
}

function applyGene(theta, layout, { seed, sigma, operator }) {
  const { verb, kind } = operator;
  if (verb === "gaussian") return move(theta, 0, layout.weights, seed, sigma);
  if (verb === "sparse") return sparse(theta, seed, sigma, operator.below);
  if (verb === "lowrank") return lowrank(theta, layout, seed, sigma, operator.rank);
  const empty = verb === "grow" ? emptyHead(theta, layout) : -1;
  const number = empty >= 0 ? empty : choose(seed, countBlocks(layout, kind));
  for (const [start, size] of blockSpans(layout, kind, number)) {
    if (verb !== "block") theta.fill(0, start, start + size);
    move(theta, start, size, seed, sigma);
  }
}

// The product has up to 60 bits, more than a float64 holds.
const choose = (seed, n) => Number((BigInt(noiseWords(seed, 1, 0)[0]) * BigInt(n)) >> 32n);

function countBlocks({ tensors, heads }, kind) {
  if (kind === "layer") return layersOf(tensors).length;
  return kind === "head" ? heads : tensors.reduce((sum, t) => sum + t.size / t.columns, 0);
}

// Where a block lies in θ, as pairs of a start and a size.
function blockSpans({ tensors }, kind, number) {
  if (kind === "layer") return layersOf(tensors)[number].map((t) => [t.start, t.size]);
  if (kind === "head") {
    return tensors.filter((t) => t.heads).map(({ start, size, heads }) =>
      [start + number * (size / heads), size / heads]);
  }
  let row = number; // rows are too many to list them all
  for (const { start, size, columns } of tensors) {
    if (row < size / columns) return [[start + row * columns, columns]];
    row -= size / columns;
  }
}

function emptyHead(theta, layout) {
  const isEmpty = ([start, size]) => theta.subarray(start, start + size).every((x) => x === 0);
  for (let h = 0; h < layout.heads; h += 1) {
    if (blockSpans(layout, "head", h).every(isEmpty)) return h;
  }
  return -1;
}

function sparse(theta, seed, sigma, below) {
  for (let i = 0; i < theta.length; i += 1) {
    threefry(seed, 2, i);
    if ((words[0] >>> 0) < below) move(theta, i, 1, seed, sigma);
  }
}

function factors(seed, stream, start, count) {
  const values = new Int8Array(count);
  for (let i = 0; i < count; i += 1) values[i] = fourZ(seed, stream, start + i);
  return values;
}

function lowrank(theta, layout, seed, sigma, rank) {
  const sixteenth = bf16(sigma / Math.sqrt(rank)) / 16;
  let [left, right] = [0, 0];
  for (const { isMatrix, start, size, rows, columns } of layout.tensors) {
    if (!isMatrix) move(theta, start, size, seed, sigma);
    for (let at = start; isMatrix && at < start + size; at += rows * columns) {
      const a = factors(seed, 3, left, rank * rows);
      const b = factors(seed, 4, right, rank * columns);
      addOuter(theta.subarray(at, at + rows * columns), a, b, rank, sixteenth);
      left += a.length;
      right += b.length;
    }
  }
}

// The sums count sixteenths, at most 2^16 of them, so that s times one of them is a float32 number.
function addOuter(weights, a, b, rank, sixteenth) {
  const [rows, columns] = [a.length / rank, b.length / rank];
  const sums = new Int32Array(columns);
  for (let row = 0; row < rows; row += 1) {
    sums.fill(0);
    for (let k = 0; k < rank; k += 1) {
      const factor = a[k * rows + row];
      const from = k * columns;
      for (let c = 0; c < columns; c += 1) sums[c] += factor * b[from + c];
    }
    for (let c = 0; c < columns; c += 1) weights[row * columns + c] += sixteenth * sums[c];
  }
}

const OPERATOR = new RegExp("^(?:(gaussian|grow)|(block|renew):(layer|row|head)|" +
  "(sparse):(\\d*\\.?\\d+(?:e-?\\d{1,3})?)|(lowrank):([1-9]\\d?))$");

// `text` is the operator's one spelling, which is hashed.
function readOperator(text, layout, field) {
  const found = OPERATOR.exec(text);
  demand(found, `${field}: ${quote(text)} is not known here`);
  const [verb, argument] = found.slice(1).filter((part) => part !== undefined);
  const kind = verb === "grow" ? "head" : argument;
  demand(kind !== "head" || layout.heads, `${field}: ${text} needs a network with heads`);
  if (verb === "sparse") {
    const share = Number(argument);
    const below = roundEven(share * 2 ** 32);
    demand(share <= 1 && below >= 1, `${field}: the share is not above 0 and up to 1`);
    return { verb, below, text: `sparse:${spell(share)}` };
  }
  const rank = verb === "lowrank" ? Number(argument) : 0;
  demand(rank <= 64 && rank * Math.max(layout.left, layout.right) <= 2 ** 28,
    `${field}: the rank is too large`);
  return { verb, kind, rank, text };
}

function roundEven(x) {
  const [down, rest] = [Math.floor(x), x % 1];
  return rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? down + 1 : down;
}

// Shares, and the powers of Foreign roots, which can also be 0 or negative.
function spell(x) {
  const size = Math.abs(x);
  if (size > 0 && size < 0.0001) return x.toExponential().replace(/e-(\d)$/, "e-0$1");
  return Number.isInteger(x) ? `${Object.is(x, -0) ? "-" : ""}${x}.0` : String(x);
}

// 8. Names

// JSON.stringify escapes as the page asks. The keys that come here are known ones and in ASCII, so
// `sort`, which goes by UTF-16, goes by code points.
function canonical(object) {
  return JSON.stringify(Object.fromEntries(Object.keys(object).sort().map((k) => [k, object[k]])));
}

function rootText({ kind, seed, format, payload, sha256: hash }) {
  if (kind === "birth") return `birth ${seed}`;
  if (kind === "snapshot") return `snapshot ${hash}`;
  if (format === "seed-list") return `foreign seed-list ${JSON.stringify(payload)} ${hash}`;
  const genes = payload.genes.map(([spot, power]) => `[${spot},${spell(power)}]`);
  return `foreign uber {"first":${payload.first},"genes":[${genes}]} ${hash}`;
}

function genomeDigest({ name, settings, layoutDigest, root, genes }) {
  const lines = genes.map((g) => `gene ${g.seed} ${scaleBits(g.sigma)} ${g.operator.text}`);
  return sha256(["germline genome 1", `policy ${name}`, `settings ${canonical(settings)}`,
    `layout ${layoutDigest}`, `root ${rootText(root)}`, ...lines, ""].join("\n"));
}

// 9. Files

function parse(bytes, field) {
  demand(bytes.length <= MAX_JSON, `${field}: more than 16 MiB of JSON`);
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    return demand(false, `${field}: not JSON in UTF-8`);
  }
}

const isHash = matching(/^[0-9a-f]{64}$/);
const isPlace = (x) => isWhole(x, 0, 249999999);
const isPower = (x) => isList(x, 2, Number.isFinite) && isPlace(x[0]) && Math.abs(x[1]) <= 2 ** 16;
const isUber = having({ first: isPlace, genes: (x) => isList(x, MAX_ENTRIES, isPower) });
const ROOTS = {
  birth: { seed: isSeed },
  snapshot: { sha256: isHash },
  foreign: { format: oneOf("seed-list", "uber"), sha256: isHash,
    payload: (x) => isList(x, MAX_ENTRIES, isSeed) || isUber(x) },
};

function checkRoot(root) {
  demand(isText(root.kind) && Object.hasOwn(ROOTS, root.kind), "root.kind: not known here");
  checkFields(root, "root", { kind: isText, ...ROOTS[root.kind] });
  demand(root.kind !== "foreign" || Array.isArray(root.payload) === (root.format === "seed-list"),
    "root.payload: not of its format");
}

function readGenes(runs, layout) {
  const genes = [];
  runs.forEach((run, i) => {
    const field = `genes[${i}]`;
    checkFields(run, field,
      { sigma: isScale, operator: isText, seeds: (x) => isList(x, MAX_ENTRIES, isSeed) && x.length });
    const operator = readOperator(run.operator, layout, `${field}.operator`);
    const sigma = bf16(run.sigma);
    for (const seed of run.seeds) genes.push({ seed, sigma, operator });
    demand(genes.length <= MAX_ENTRIES, "genes: more than 131072");
  });
  return genes;
}

// Tasks and normalisers change neither the id nor the weights: of them the form alone is checked.
const isPlain = (x) => ["number", "boolean"].includes(typeof x) || matching(/^.{0,1024}$/su)(x);
const isTask = (task) => isObject(task) && having({
  name: matching(/^[a-z][a-z0-9-]{0,63}$/),
  settings: (object) => isObject(object) &&
    isList(Object.values(object), 64, (x) => isPlain(x) || isList(x, 1024, isPlain)),
})({ settings: {}, ...task });
const isNumbers = (x) => isList(x, Infinity, Number.isFinite);
const isNormaliser = (x) => having({ mean: isNumbers, std: isNumbers })(x) &&
  x.mean.length === x.std.length && x.std.every((n) => n > 0);

const orNull = (test) => (x) => x === null || test(x);
const FIELDS = {
  germline: oneOf(1), policy: isObject, root: isObject, genes: Array.isArray, id: orNull(isText),
  task: orNull(isTask), arithmetic: oneOf("float32", "bfloat16", "exact"),
  siblings: (x) => isWhole(x, 0, 256), normaliser: orNull(isNormaliser),
};

function readGenome(file) {
  demand(file?.germline === 1, "germline: not version 1 of the format"); // before its fields
  checkFields(file, "file", FIELDS, ["id", "task", "arithmetic", "siblings", "normaliser"]);
  demand(!file.siblings || file.arithmetic !== "exact", "siblings: not with exact arithmetic");
  checkFields(file.policy, "policy", { name: isText, layout: isHash, settings: isObject },
    ["settings"]);
  const { policy: { name, settings = {}, layout: layoutDigest }, root } = file;
  const layout = makeLayout(name, settings);
  demand(layoutDigest === sha256(layoutText(layout)), "policy.layout: not that of the settings");
  checkRoot(root);
  const genes = readGenes(file.genes, layout);
  const digest = genomeDigest({ name, settings, layoutDigest, root, genes });
  const id = digest.slice(0, 16);
  demand((file.id ?? id) === id, `id: wrong, the genome's is ${id}`);
  return { id, digest, layout, root, genes };
}

// The genome in the bytes of a file, with the weights that a safetensors file has: `carried`.
export function readFile(bytes) {
  const isBinary = bytes.subarray(0, 8).includes(0) && bytes[8] === 0x7b;
  if (!isBinary) return readGenome(parse(bytes, "the file"));
  const length = Number(bytes.readBigUInt64LE(0));
  demand(length <= Math.min(MAX_JSON, bytes.length - 8), "the header: its length is wrong");
  const header = parse(bytes.subarray(8, 8 + length), "the header");
  checkFields(header, "header", { __metadata__: isObject, root: isObject });
  demand(isText(header.__metadata__.germline), "__metadata__.germline: not there");
  const genome = readGenome(parse(Buffer.from(header.__metadata__.germline), "__metadata__"));
  demand(genome.root.kind === "snapshot", "root.kind: not snapshot in a safetensors file");
  const size = 4 * genome.layout.weights;
  const carried = bytes.subarray(8 + length);
  demand(carried.length === size, "root: not as many weights as the layout has");
  checkFields(header.root, "header.root", { dtype: oneOf("F32"),
    shape: (x) => isList(x, 1, oneOf(size / 4)) && x.length === 1,
    data_offsets: (x) => Array.isArray(x) && x.length === 2 && x[0] === 0 && x[1] === size });
  return { ...genome, carried };
}

export function decode({ id, layout, root, genes, carried }) {
  demand(root.kind !== "foreign", `root: Foreign, which is not decoded here; the id is ${id}`);
  const theta = root.kind === "birth" ? birth(layout, root.seed)
    : snapshot(layout, root.sha256, carried);
  for (const gene of genes) applyGene(theta, layout, gene);
  return theta;
}

// The command line

function handle(file, out) {
  demand(statSync(file).size <= 8 + MAX_JSON + 4 * MAX_WEIGHTS, "the file: too large");
  const genome = readFile(readFileSync(file));
  const bytes = Buffer.from(decode(genome).buffer);
  if (out === undefined) console.log(`${genome.id} ${sha256(bytes)} ${file}`);
  else writeFileSync(out, bytes);
}

function main(args) {
  const isOut = args[0] === "--weights";
  const files = isOut ? args.slice(2) : args;
  let current = "use: node reader.mjs FILE... or node reader.mjs --weights OUT FILE";
  try {
    demand(IS_LITTLE, "only for little-endian machines");
    demand(isOut ? files.length === 1 : files.length > 0, "no file, or too many");
    for (current of files) handle(current, isOut ? args[1] : undefined);
  } catch (error) {
    if (!error.refused && !error.syscall) throw error; // a fault of this program is no refusal
    console.error(`${current}: ${error.message}.`);
    process.exitCode = 2;
  }
}

if (process.argv[1] && realpathSync(process.argv[1]) === realpathSync(new URL(import.meta.url))) {
  main(process.argv.slice(2));
}
