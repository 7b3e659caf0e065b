// One job: what it is, what its workers do now, where their time goes, how it learns.
import { bubbleBars, kindOf, lossChart, spansOf, spanText, timelineChart } from "./charts.js";
import { bytes, el, layers, loss, many, number, percent, seconds, section, table } from "./dom.js";

const kActive = new Set(["preparing", "running", "draining", "recovering"]);
export const isActive = (job) => kActive.has(job.state);

export const progressBar = (job, size = "") => el("div", { class: `bar ${size}`,
  role: "progressbar", "aria-label": "steps done", "aria-valuemin": 0, "aria-valuemax": 100,
  "aria-valuenow": job.progress_percentage ?? 0 },
el("i", { style: { width: `${job.progress_percentage ?? 0}%` } }));

const isProfile = (job) => job.method === "profile";

const elapsed = (job) => ((job.ended_unix_ms ?? Date.now()) - job.started_unix_ms) / 1000;

function factsOf(job) {
  const { result } = job;
  const step = result.feedback.measured.step_seconds;
  const facts = isProfile(job) ? [["measurements", `${number(job.step)} of ${number(job.steps)}`]] : [
    ["step", `${number(job.step)} of ${number(job.steps)}`],
    ["training loss", loss(result.train_loss)],
    ["validation loss", loss(result.validation_loss)],
    ...Object.entries(result.validation_metrics).map(([name, share]) => [name, percent(share)]),
    ["speed", result.unit === null ? "–"
      : `${many(result[`${result.unit}_per_second`])} ${result.unit}/s`],
    ["step time", seconds(step)],
    ["bubble", percent(result.bubble_ratio)],
    ...(result.mfu === null ? [] : [["MFU", percent(result.mfu)]]),
  ];
  if (job.started_unix_ms !== null) {
    facts.push([job.ended_unix_ms === null ? "running" : "took", seconds(elapsed(job))]);
  }
  if (isActive(job) && job.estimated_remaining_seconds !== null) {
    facts.push(["left", seconds(job.estimated_remaining_seconds)]);
  }
  return facts;
}

function head(job) {
  return el("section", { class: "card", "aria-labelledby": "job-name" },
    el("div", { class: "title" }, el("h1", { id: "job-name" }, job.name || job.job_id),
      el("span", { class: `state ${job.state}` }, job.state),
      el("span", { class: "dim" }, `${job.job_id} · ${job.method}`)),
    el("dl", { class: "facts" }, factsOf(job).map(([name, value]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    el("div", { style: { marginTop: "12px" } }, progressBar(job, "large")),
    job.error === null ? null : el("p", { class: "problem" }, job.error),
    job.reason === null ? null : el("p", { class: "reason" }, job.reason));
}

// Plays the last second of a timeline again and again as it comes, so that one sees the work go through
// the stages; slower where less than a second is known.
class Playback {
  constructor(tiles, chart, timeline, plan) {
    Object.assign(this, { tiles, chart, plan });
    this.spans = spansOf(timeline).filter((span) => kindOf(span) !== null);
    this.end = Math.max(...this.spans.map((span) => span.end_us));
    const start = Math.min(...this.spans.map((span) => span.start_us));
    this.length = Math.min(1e6, this.end - start);
    this.began = performance.now();
  }
  // A moment of it, without any motion.
  showStill() {
    this.show(this.began + 500);
  }
  show(now) {
    const played = Math.min(1, Math.max(0, (now - this.began) / 1000));
    const moment = this.end - this.length * (1 - played);
    this.chart.moveTo(moment);
    const current = new Map();
    for (const span of this.spans) {
      if (span.start_us <= moment && moment < span.end_us) current.set(span.worker, span);
    }
    for (const [i, stage] of this.plan.entries()) {
      const span = current.get(stage.worker_index);
      // What is of no stage is of all that the worker has.
      const ours = span !== undefined && (span.stage === null || span.stage === stage.stage);
      this.tiles[i].className = `now ${ours ? kindOf(span) : ""}`;
      this.tiles[i].textContent = ours ? spanText(span) : "·";
    }
    return played < 1;
  }
}

// Fills a section that has nothing to show, with `yet` while the job may still bring it and with `ever` after its end.
const nothing = (job, yet, ever) =>
  el("p", { class: "dim" }, job.ended_unix_ms === null ? yet : ever);
const nothingMeasured = (job) => nothing(job, "Nothing is measured yet.",
  "The job ended before anything was measured.");

function predictions(job, perStage) {
  const rows = [];
  const add = (what, predicted, measured, text) => {
    if (predicted === null && measured === null) return;
    const both = predicted !== null && measured !== null && predicted > 0;
    const off = both ? measured / predicted - 1 : null;
    const shown = off === null ? "–" : `${off >= 0 ? "+" : "−"}${percent(Math.abs(off))}`;
    rows.push([what, predicted === null ? "–" : text(predicted),
      measured === null ? "–" : text(measured), [shown, Math.abs(off ?? 0) > 0.1 ? "far" : ""]]);
  };
  const { predicted, measured } = job.result.feedback;
  add("step", predicted?.step_seconds ?? null, measured.step_seconds, seconds);
  const delay = job.result.block_delay;
  const seen = job.result.block_delay_measured;
  if ((delay?.max ?? 0) > 0 || (seen?.max ?? 0) > 0) {
    add("block delay, mean", delay?.mean ?? null, seen?.mean ?? null, (one) => number(one, 2));
    add("block delay, most", delay?.max ?? null, seen?.max ?? null, number);
  }
  for (const worker of measured.workers) {
    const other = predicted?.workers.find((one) => one.worker === worker.worker);
    add(`sent in a step by ${worker.worker}`, other?.sent_bytes_per_step ?? null,
      worker.sent_bytes_per_step, bytes);
  }
  for (const stage of perStage) {
    if (perStage.find((one) => one.worker === stage.worker) !== stage) continue;
    add(`memory of ${stage.worker}`, stage.predicted_memory_bytes, stage.peak_memory_bytes, bytes);
  }
  return rows.length === 0 ? nothingMeasured(job)
    : table([["", false], ["predicted", true], ["measured", true], ["difference", true]], rows);
}

// Whether a microbatch goes from one stage to the other: it does not to a replica, nor to the first stage of
// another copy of the model.
const follows = (before, stage) => before !== undefined && stage.first_layer !== 0 &&
  stage.first_layer !== before.first_layer;

const updates = (statistic) => statistic.max === statistic.mean ? number(statistic.max)
  : `${number(statistic.mean, 2)}, at most ${number(statistic.max)}`;

// How often the job was begun, and why.
const attempts = (all) => table([["attempt", true], ["steps", false], ["ended because", false],
  ["laid to", false], ["back after", true], ["done again", true]],
all.map((one, i) => [number(i + 1),
  one.last_step > one.first_step ? `${number(one.first_step + 1)}–${number(one.last_step)}` : "–",
  one.message ?? "–", one.worker ?? "–",
  one.resumed_ms === null ? "–" : seconds((one.resumed_ms - one.detected_ms) / 1000),
  number(one.steps_redone)]));

// The candidates that the coordinator weighed, the chosen one first.
function candidates(planning) {
  const raced = planning.candidates.some((candidate) => candidate.race !== null);
  const predicted = planning.candidates.some((candidate) => candidate.steps_factor !== null);
  const steps = (factor) => factor === null ? "–" : factor.low === factor.high ? "1"
    : `${number(factor.expected, 2)} (${number(factor.low, 2)} to ${number(factor.high, 2)})`;
  const race = (record) => record === null ? "–"
    : record.failed ?? `${loss(record.loss)} after ${number(record.steps)} steps`;
  return [el("p", {}, `Chosen by ${planning.chosen_by}.`),
    table([["candidate", false], ["layers", false], ["step", true], ["bubble", true],
      ["memory", true], ["staleness", true],
      ...(predicted ? [["steps to a loss", true]] : []),
      ...(raced ? [["loss in the race", false]] : [])],
    planning.candidates.filter((candidate) => candidate.rejected === null).map((candidate) => [
      candidate.name, candidate.stage_layers.join("-"), seconds(candidate.step_seconds),
      percent(candidate.bubble_ratio), bytes(candidate.memory_bytes),
      number(candidate.staleness_max),
      ...(predicted ? [steps(candidate.steps_factor)] : []),
      ...(raced ? [race(candidate.race)] : [])]))];
}

// Returns the sections of a job, and how to play what its workers do (null: nothing known, or it has ended).
// `widths`: {full, half}, of pictures in sections of that size.
export function jobView(job, live, widths) {
  if (isProfile(job)) {
    const figures = el("p", { class: "dim" }, "The figures: ",
      el("code", {}, `penstock status ${job.job_id}`));
    return { parts: [head(job), section("Profile", "profile-title", "", figures)], playback: null };
  }
  const plan = job.plan.stages;
  const perStage = live !== null && live.per_stage.length > 0 ? live.per_stage
    : job.result.per_stage;
  const parts = [head(job)];
  if (plan.length === 0) return { parts, playback: null };

  const over = job.result.attempts.filter((one) => one.cause !== null);
  if (over.length > 0) {
    parts.push(section("Attempts", "attempts-title", "", attempts(job.result.attempts)));
  }
  const ended = !isActive(job);
  const reportOf = (stage) => perStage.find((one) => one.stage === stage.stage);
  const share = (stage) => `computed ${percent(1 - (reportOf(stage)?.bubble_ratio ?? NaN))}`;
  const tiles = plan.map((stage) => el("div", { class: "now" }, ended ? share(stage) : "·"));
  parts.push(section(ended ? "Pipeline" : "Pipeline, a second ago", "pipeline-title", "live",
    el("div", { class: "pipeline", id: "pipeline" }, plan.map((stage, i) =>
      el("div", { class: `stage ${follows(plan[i - 1], stage) ? "follows" : ""}` },
        el("div", { class: "who" }, el("b", {}, `stage ${stage.stage}`),
          el("span", {}, stage.worker), el("span", {}, layers(stage))), tiles[i])))));

  const names = [];
  const missing = new Set(live?.missing_workers ?? []);
  for (const stage of plan) names[stage.worker_index] = stage.worker;
  const timeline = live?.timeline ?? null;
  const chart = timeline === null ? null : timelineChart(timeline, names, widths.full);
  if (chart !== null && missing.size > 0) {
    chart.parts.push(el("p", { class: "problem" }, `No answer from ${[...missing].join(", ")}: ` +
      "what is missing there is not known."));
  }
  parts.push(section("Timeline", "timeline-title", "live",
    ...(chart?.parts ?? [nothing(job, "Nothing has come from the workers yet.",
      "The job ended without a timeline of its workers.")])));

  parts.push(section("Where the time goes", "bubble-title", "half",
    ...(perStage.some((stage) => stage.window_seconds > 0) ? bubbleBars(perStage)
      : [nothingMeasured(job)])));
  parts.push(section("Staleness", "staleness-title", "half", perStage.length === 0
    ? nothingMeasured(job)
    : table([["stage", true], ["staleness in updates", true], ["version drift", true],
      ["weight versions", true], ["updates", true], ["bubble", true]],
    perStage.map((stage) => [number(stage.stage), updates(stage.staleness),
      updates(stage.version_drift), number(stage.versions_peak), number(stage.updates),
      percent(stage.bubble_ratio)]))));
  parts.push(section("Loss", "loss-title", "half",
    ...[lossChart(job.result.losses, job.result.validations,
      over, widths.half) ??
      nothing(job, "No step is done yet.", "The job ended before a step was done.")].flat()));
  parts.push(section("Predicted and measured", "predicted-title", "half",
    predictions(job, perStage)));
  parts.push(section("Plan", "plan-title", "",
    el("div", { class: "layers", "aria-hidden": "true" }, plan.map((stage) =>
      el("span", { style: { flexGrow: stage.layers } }, String(stage.layers)))),
    table([["stage", true], ["worker", false], ["address", false], ["layers", false],
      ["memory", true], ["sent", true]],
    plan.map((stage) => {
      const report = reportOf(stage);
      return [number(stage.stage), stage.worker, stage.address, layers(stage),
        report === undefined ? "–" : bytes(report.memory_bytes),
        report === undefined ? "–" : bytes(report.bytes_sent)];
    }))));
  if (job.planning !== null) {
    parts.push(section("How it was chosen", "planning-title", "", ...candidates(job.planning)));
  }
  const playback = ended || chart === null ? null
    : new Playback(tiles, chart, timeline, plan);
  return { parts, playback };
}
