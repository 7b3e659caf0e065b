// Pictures: loss curve, timeline, bars of busy and idle time.
import { el, legend, loss, many, percent, seconds, svg } from "./dom.js";

// Where the text of a tick stands: not beyond the right edge.
const anchor = (x, width) => (x > width - 24 ? "end" : "middle");

// Round numbers between low and high, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) {
    found.push(value);
  }
  return found;
}

// More of them than this are a line.
const kCirclesMax = 200;

// The frame of a picture of losses: where values stand, the grid, and the texts at both edges. `low` to `high`: losses;
// `last`: the largest on the other axis, whose numbers `text` writes.
function lossFrame(width, low, high, last, text) {
  const height = 240, left = 46, right = 12, top = 10, bottom = 24;
  if (high - low < 1e-9) [low, high] = [low - 0.5, high + 0.5];
  const x = (value) => left + (width - left - right) * value / last;
  const y = (value) => top + (height - top - bottom) * (high - value) / (high - low);
  const at = (across, value) => `${x(across).toFixed(1)} ${y(value).toFixed(1)}`;
  return {
    x, y, low, high, viewBox: `0 0 ${width} ${height}`,
    line: (curve) => curve.map(([across, value], i) => `${i ? "L" : "M"}${at(across, value)}`).join(""),
    grid: [
      ticks(low, high, 5).map((value) => [
        svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
        svg("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" },
          String(Number(value.toPrecision(6))))]).flat(),
      ticks(0, last, Math.min(6, Math.floor(width / 80))).map((value) =>
        svg("text", { x: x(value), y: height - 6, "text-anchor": anchor(x(value), width) },
          text(value)))].flat(),
  };
}

const hasLoss = (point) => Number.isFinite(point.loss);

// points and validations: [{step, loss}]; ended: the attempts that are over. `width`: of the picture, in
// pixels; so in all pictures, that text has its size. Null if there is no point.
export function lossChart(points, validations, ended, width) {
  const all = [...points, ...validations].filter(hasLoss);
  if (all.length === 0) return null;
  const losses = all.map((point) => point.loss);
  const last = Math.max(1, ...all.map((point) => point.step));
  const frame = lossFrame(width, Math.min(...losses), Math.max(...losses), last, many);
  const line = (curve) =>
    frame.line(curve.filter(hasLoss).map((point) => [point.step, point.loss]));
  const newest = points.at(-1) ?? all.at(-1);
  return [
    svg("svg", { viewBox: frame.viewBox, role: "img", id: "loss-curve",
      "aria-label": `Loss over steps: ${loss(newest.loss)} at step ${newest.step}` },
    frame.grid,
    ended.map((one, i) => svg("path", { class: "attempt",
      d: frame.line([frame.low, frame.high].map((value) => [one.last_step, value])) },
    svg("title", {}, `attempt ${i + 1} ended after step ${one.last_step}: ${one.message ?? one.cause}`))),
    svg("path", { class: "curve", d: line(points) }),
    svg("path", { class: "validation-line", d: line(validations) }),
    (validations.length > kCirclesMax ? [] : validations).map((point) => svg("circle", { class: "validation", r: 3.2,
      cx: frame.x(point.step), cy: frame.y(point.loss) },
    svg("title", {}, `validation ${loss(point.loss)}, step ${point.step}`)))),
    legend([["f", "training"], ["validation", "validation"],
      ...(ended.length > 0 ? [["attempt", "an attempt ended"]] : [])]),
  ];
}

// curves: [{name, kind, points: [[step or seconds, loss]]}], one for each job; `text` writes a number of the first kind.
// Null if there is no point.
export function comparisonChart(title, curves, text, width) {
  const all = curves.flatMap((curve) => curve.points);
  if (all.length === 0) return null;
  const losses = all.map(([, value]) => value);
  const last = Math.max(...all.map(([across]) => across)) || 1;
  const frame = lossFrame(width, Math.min(...losses), Math.max(...losses), last, text);
  return [
    svg("svg", { viewBox: frame.viewBox, role: "img", "aria-label": title },
      frame.grid, curves.map((curve) => svg("path", { class: `compared ${curve.kind}`,
        d: frame.line(curve.points) }, svg("title", {}, curve.name)))),
    legend(curves.map((curve) => [curve.kind, curve.name])),
  ];
}

export const kKinds = [["f", "forward"], ["r", "recompute"], ["i", "backward, input"],
  ["w", "backward, weights"], ["s", "update"], ["c", "collective"], ["m", "send, receive"],
  ["input", "waits for input"], ["credit", "for credit"], ["collective", "for others"],
  ["data", "for data"], ["host", "for copies to or from the host"]];
const kCompute = { F: "f", R: "r", I: "i", W: "w", UPDATE: "s" };

// How a span looks: a class of style.css; null: not at all.
export function kindOf(span) {
  if (span.wait !== null) return `wait-${span.wait}`;
  if (span.lane === "compute") return kCompute[span.action] ?? null;
  return span.lane === "collective" ? "c" : "m";
}

export function spansOf(timeline) {
  return timeline.spans.map((row) => {
    const span = Object.fromEntries(timeline.columns.map((name, i) => [name, row[i]]));
    // The number is that of a group of stages, not of one.
    return span.action === "REDUCE" ? { ...span, stage: null } : span;
  });
}

export const spanText = (span) => {
  const where = span.microbatch === null ? span.action : `${span.action} ${span.microbatch}`;
  return span.wait === null ? where : `waits for ${span.wait}`;
};

// Rectangles of one colour in one path: thousands of elements would be slow.
const kTooltipsMax = 700;

// `names`: of the workers. Returns the picture and a function that moves the line of the moment; null if there is
// nothing to draw.
export function timelineChart(timeline, names, width) {
  const spans = spansOf(timeline).filter((span) => kindOf(span) !== null);
  if (spans.length === 0) return null;
  const left = 86, rowHeight = 26, gap = 5, top = 4;
  const start = Math.min(...spans.map((span) => span.start_us));
  const end = Math.max(...spans.map((span) => span.end_us));
  const plot = width - left - 8;
  const x = (us) => left + plot * (us - start) / Math.max(1, end - start);
  const y = (worker) => top + worker * (rowHeight + gap);
  const bottom = y(timeline.workers);
  const box = (span) => {
    const inset = span.wait === null ? 0 : 7;
    return { x: x(span.start_us).toFixed(1), y: y(span.worker) + inset,
      width: Math.max(0.4, x(span.end_us) - x(span.start_us) - 0.4).toFixed(1),
      height: rowHeight - 2 * inset };
  };
  const shapes = spans.length <= kTooltipsMax
    ? spans.map((span) => svg("rect", { class: kindOf(span), ...box(span) },
      svg("title", {}, `stage ${span.stage ?? "–"}: ${spanText(span)}, ` +
        seconds((span.end_us - span.start_us) * 1e-6))))
    : [...Map.groupBy(spans, kindOf)].map(([kind, some]) => svg("path", { class: kind,
      d: some.map(box).map((b) => `M${b.x} ${b.y}h${b.width}v${b.height}h-${b.width}z`).join("") }));
  const playhead = svg("line", { class: "playhead", x1: -1, x2: -1, y1: 0, y2: bottom });
  const used = new Set(spans.map((span) => kindOf(span).replace("wait-", "")));
  return {
    parts: [
      svg("svg", { viewBox: `0 0 ${width} ${bottom + 22}`, role: "img", id: "timeline-picture",
        "aria-label": `What each worker did in the last ${seconds((end - start) * 1e-6)}` },
      names.map((name, worker) => [
        svg("rect", { class: "row", x: left, y: y(worker), width: plot, height: rowHeight, rx: 3 }),
        svg("text", { class: "label", x: 0, y: y(worker) + 17 },
          name.length > 12 ? `${name.slice(0, 11)}…` : name)]).flat(),
      ticks(0, end - start, Math.min(8, Math.floor(plot / 80))).map((us) => svg("text", { x: x(start + us), y: bottom + 14,
        "text-anchor": anchor(x(start + us), width) }, us === 0 ? "0" : seconds(us * 1e-6))),
      shapes, playhead),
      legend(kKinds.filter(([kind]) => used.has(kind))),
    ],
    moveTo: (us) => {
      for (const end of ["x1", "x2"]) playhead.setAttribute(end, x(us).toFixed(1));
    },
  };
}

const kCauses = ["input", "credit", "collective", "data", "host"];

// One bar for each worker: what part of its time it computed, and why it did not.
export function bubbleBars(perStage) {
  const workers = Map.groupBy(perStage, (stage) => stage.worker);
  const used = new Set();
  const rows = [...workers].map(([name, stages]) => {
    const window = Math.max(...stages.map((stage) => stage.window_seconds));
    const sum = (value) => stages.reduce((total, stage) => total + (value(stage) ?? 0), 0);
    const most = (value) => Math.max(...stages.map((stage) => value(stage) ?? 0));
    // Each of its stages reports the whole of what the worker waited for a checkpoint.
    const parts = [["busy", sum((stage) => stage.busy_seconds)],
      ...kCauses.map((cause) => [cause, sum((stage) => stage.idle_causes[cause])]),
      ["checkpoint", most((stage) => stage.idle_causes.checkpoint)]];
    const rest = window - parts.reduce((total, [, value]) => total + value, 0);
    parts.push(["overhead", Math.max(0, rest)]);
    const share = (value) => (window > 0 ? value / window : 0);
    const text = parts.filter(([, value]) => share(value) >= 0.0005)
      .map(([kind, value]) => `${kind} ${percent(share(value))}`);
    for (const [kind, value] of parts) if (share(value) >= 0.0005) used.add(kind);
    return [
      el("span", {}, `${name} · stage ${stages.map((stage) => stage.stage).join(", ")}`),
      el("span", { class: "stack", role: "img", "aria-label": `${name}: ${text.join(", ")}`,
        title: text.join(", ") },
      parts.map(([kind, value]) => el("span", { class: `k-${kind}`,
        style: { width: `${(100 * share(value)).toFixed(2)}%` } }))),
      el("span", { class: "bubble" }, window > 0 ? percent(1 - share(parts[0][1])) : "–"),
    ];
  });
  const words = { busy: "computes", input: "waits for input", credit: "for credit",
    collective: "for others", data: "for data", host: "for copies to or from the host",
    checkpoint: "for a checkpoint",
    overhead: "overhead" };
  return [el("div", { class: "bubbles" }, rows.flat()),
    legend(Object.entries(words).filter(([kind]) => used.has(kind)))];
}
