// Elements and numbers. Text goes in as text, never as markup.

export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  set(element, properties);
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, attributes);
  element.append(...children.flat());
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value);
  }
}

// A table with a header; columns: [title, is a number].
export function table(columns, rows) {
  const cell = (tag, text, column, extra) =>
    el(tag, { class: [columns[column][1] ? "n" : "", extra ?? ""].join(" ").trim() }, text);
  return el("div", { class: "wide" }, el("table", {},
    el("thead", {}, el("tr", {}, columns.map(([title], i) => cell("th", title, i)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, i) =>
      Array.isArray(value) ? cell("td", value[0], i, value[1]) : cell("td", value, i)))))));
}

export function section(title, id, width, ...children) {
  return el("section", { class: `card ${width}`, "aria-labelledby": id },
    el("h2", { id }, title), ...children);
}

export function legend(entries) {
  return el("p", { class: "legend" },
    entries.map(([kind, text]) => el("span", {}, el("i", { class: `k-${kind}` }), text)));
}

const kNone = "–";
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export const number = (value, decimals = 0) => known(value)
  ? value.toLocaleString("en", { maximumFractionDigits: decimals, minimumFractionDigits: decimals })
  : kNone;
export const loss = (value) => (known(value) ? value.toPrecision(4) : kNone);
export const percent = (value) => (known(value) ? `${(100 * value).toFixed(1)} %` : kNone);

const digits = (value) => String(Number(value.toPrecision(3)));

function scaled(value, step, units) {
  if (!known(value)) return kNone;
  let unit = 0;
  while (Math.abs(value) >= step && unit + 1 < units.length) { value /= step; ++unit; }
  return `${unit === 0 ? Math.round(value) : digits(value)} ${units[unit]}`.trim();
}
export const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
export const many = (value) => scaled(value, 1000, ["", "k", "M", "G", "T"]);

export function seconds(value) {
  if (!known(value)) return kNone;
  if (value < 1e-3) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${digits(value * 1e3)} ms`;
  if (value < 60) return `${digits(value)} s`;
  const whole = Math.round(value);
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h > 0 ? `${h} h ${m} min` : `${m} min ${s} s`;
}

export const layers = (stage) => stage.layers === 1 ? `layer ${stage.first_layer}`
  : `layers ${stage.first_layer}–${stage.first_layer + stage.layers - 1}`;
