// Several jobs beside each other: their losses over steps and over time, and what each came to.
import { comparisonChart } from "./charts.js";
import { loss, many, number, percent, seconds, section, table } from "./dom.js";

export const kComparedMax = 8;  // as many as there are colours (style.css)

const kindOf = (index) => `job-${index}`;

// [[number, loss]] of a job's training, where both are known.
const curveOf = (job, across) => job.result.losses
  .map((point) => [across(point), point.loss])
  .filter((point) => point.every(Number.isFinite));

// Since the job first had its workers; steps of a version that kept no time have none.
const secondsOf = (job) => (point) =>
  point.unix_ms === null || job.started_unix_ms === null ? NaN
    : Math.max(0, (point.unix_ms - job.started_unix_ms) / 1000);

function plot(title, id, jobs, across, text, width) {
  const curves = jobs.map((job, i) =>
    ({ name: job.job_id, kind: kindOf(i), points: curveOf(job, across(job)) }));
  return section(title, id, "half",
    ...(comparisonChart(title, curves, text, width) ?? ["No step is done yet."]));
}

// jobs: the documents of /api/v1/jobs/ID. Returns the sections; `widths` as in jobView.
export function compareView(jobs, widths) {
  const figures = table([["job", false], ["method", false], ["state", false], ["step", true],
    ["training loss", true], ["validation loss", true], ["samples/s", true], ["MFU", true],
    ["bubble", true], ["attempts", true]],
  jobs.map((job) => [job.job_id, job.method, job.state, number(job.step),
    loss(job.result.train_loss), loss(job.result.validation_loss),
    many(job.result.samples_per_second), percent(job.result.mfu), percent(job.result.bubble_ratio),
    number(job.result.attempts.length)]));
  return [section("Compared", "compared-title", "", figures),
    plot("Loss over steps", "compared-steps-title", jobs, () => (point) => point.step, many,
      widths.half),
    plot("Loss over time", "compared-time-title", jobs, secondsOf, seconds, widths.half)];
}
