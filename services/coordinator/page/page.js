// The coordinator's status page: asks for the documents, draws them, and goes on asking.
import { compareView, kComparedMax } from "./compare.js";
import { bytes, el } from "./dom.js";
import { isActive, jobView, progressBar } from "./job.js";

const kActiveInterval = 1000;  // ms between questions while a job runs
const kSoonInterval = 250;     // the workers have been asked
const kSoonTimes = 4;          // so often; then they are slow
const kQuietInterval = 4000;
const kLostIntervalMax = 8000;
const kTimeout = 6000;
const kLossPoints = 600;
const kJobsShown = 200;        // the newest

const byId = (id) => document.getElementById(id);
const stillness = matchMedia("(prefers-reduced-motion: reduce)");

// The coordinator did not answer, or refused (then `status` is HTTP's).
class Unanswered extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function ask(path) {
  let status, text;
  try {
    const answer = await fetch(path, { signal: AbortSignal.timeout(kTimeout) });
    [status, text] = [answer.status, await answer.text()];
  } catch {
    throw new Unanswered("no answer from the coordinator");
  }
  if (status !== 200) throw new Unanswered(text.trim(), status);
  return JSON.parse(text);
}

const chosen = () => {
  const match = /^#job=(.+)$/.exec(location.hash);
  try {
    return match === null ? null : decodeURIComponent(match[1]);
  } catch {
    return null;
  }
};

// The jobs that are shown beside each other; fewer than two: none.
const compared = () => {
  const match = /^#compare=(.+)$/.exec(location.hash);
  try {
    const ids = match === null ? [] : match[1].split(",").map(decodeURIComponent);
    const unique = [...new Set(ids)].slice(0, kComparedMax);
    return unique.length > 1 ? unique : [];
  } catch {
    return [];
  }
};

// Takes a job into the comparison, or out of it. `current`: the one that is shown alone.
function compare(jobId, wanted, current) {
  const now = compared().length > 0 ? compared() : [current];
  const ids = wanted ? [...new Set([...now, jobId])] : now.filter((id) => id !== jobId);
  if (ids.length === 0) return;
  location.hash = ids.length === 1 ? `#job=${encodeURIComponent(ids[0])}`
    : `#compare=${ids.slice(0, kComparedMax).map(encodeURIComponent).join(",")}`;
}

// Entries stay where they are while their contents change, so that the keyboard keeps its place.
function fill(list, items, key, contents) {
  const old = new Map([...list.children].map((entry) => [entry.dataset.key, entry]));
  items.forEach((item, i) => {
    const entry = old.get(key(item)) ?? el("li", { "data-key": key(item) });
    old.delete(key(item));
    contents(entry, item);
    if (list.children[i] !== entry) list.insertBefore(entry, list.children[i] ?? null);
  });
  for (const entry of old.values()) entry.remove();
}

function showJobs(jobs, current) {
  fill(byId("jobs"), jobs, (job) => job.job_id, (entry, job) => {
    const link = entry.firstElementChild ?? entry.appendChild(el("a"));
    const box = entry.querySelector("input") ?? entry.appendChild(el("label", {},
      el("input", { type: "checkbox" }), "compare")).firstElementChild;
    const ids = compared();
    box.setAttribute("aria-label", `Compare ${job.job_id}`);
    box.checked = ids.includes(job.job_id) || (ids.length === 0 && job.job_id === current);
    box.disabled = !box.checked && ids.length >= kComparedMax;
    box.onchange = () => compare(job.job_id, box.checked, current);
    link.setAttribute("href", `#job=${encodeURIComponent(job.job_id)}`);
    link.setAttribute("aria-current", String(ids.length === 0 && job.job_id === current));
    link.replaceChildren(
      el("span", { class: "name" }, job.name || job.job_id),
      el("span", { class: `state ${job.state}` }, job.state),
      el("span", { class: "sub" }, `${job.job_id} · ${job.method}`),
      el("span", { class: "sub count" }, `${job.step}/${job.steps}`), progressBar(job));
  });
  byId("no-jobs").hidden = jobs.length > 0;
}

// As StateOf in coordinator/worker_state.h.
function stateOf(worker) {
  if (!worker.alive) return "lost";
  if (worker.unusable_reason) return "stuck";
  if (worker.leaving) return "leaving";
  return worker.job_id === null ? "free" : "busy";
}

function showWorkers(workers) {
  fill(byId("workers"), workers, (worker) => worker.name, (entry, worker) => {
    const state = stateOf(worker);
    entry.replaceChildren(el("b", {}, worker.name),
      el("span", { class: state, title: worker.unusable_reason ?? "" }, state),
      el("span", { class: "sub", title: worker.device },
        `${worker.device} · ${bytes(worker.memory_bytes)}`));
  });
  byId("no-workers").hidden = workers.length > 0;
  const count = (state) => workers.filter((worker) => stateOf(worker) === state).length;
  const others = ["leaving", "stuck", "lost"].filter((state) => count(state) > 0)
    .map((state) => `, ${count(state)} ${state}`);
  byId("cluster").textContent = `${count("busy")} busy, ${count("free")} free${others.join("")}`;
}

let playback = null;
function play(now) {
  if (playback !== null && playback.show(now)) requestAnimationFrame(play);
}

// What has not changed stays, with its selected text; tables stay where they were scrolled to.
function replaceParts(parent, parts) {
  const old = [...parent.children];
  parent.replaceChildren(...parts.map((part, i) => {
    const same = !part.classList.contains("live") && old[i]?.isEqualNode(part);
    return same ? old[i] : part;
  }));
  parts.forEach((part, i) => {
    const scrolled = old[i]?.querySelector(".wide")?.scrollLeft ?? 0;
    const scrolls = part.querySelector(".wide");
    if (scrolled > 0 && scrolls !== null) scrolls.scrollLeft = scrolled;
  });
}

// What a picture has room for in a section (style.css).
function widths() {
  const kPadding = 34, kGap = 14, kBothBeside = 1100;
  const full = byId("job").clientWidth;
  const half = innerWidth > kBothBeside ? (full - kGap) / 2 : full;
  return { full: Math.max(260, full - kPadding), half: Math.max(260, half - kPadding) };
}

function showJob(job, live) {
  const view = jobView(job, live, widths());
  replaceParts(byId("job"), view.parts);
  document.title = isActive(job) ? `${job.step}/${job.steps} · ${job.name} · Penstock`
    : `${job.name} ${job.state} · Penstock`;
  playback = view.playback;
  if (playback === null) return;
  if (stillness.matches) playback.showStill();
  else requestAnimationFrame(play);
}

function showNothing(text) {
  playback = null;
  document.title = "Penstock";
  byId("job").replaceChildren(el("section", { class: "card" }, el("p", { class: "dim" }, text)));
}

// Whether the first answer of a job's workers is worth asking for soon: they answer while they train.
let soon = { job: null, times: 0 };
function awaitsWorkers(job, live) {
  const trains = job.state === "running" || job.state === "draining";
  if (soon.job !== job.job_id || live.timeline !== null) soon = { job: job.job_id, times: 0 };
  return trains && live.timeline === null && soon.times++ < kSoonTimes;
}

// Returns how long to wait before asking again.
async function refreshCompared(ids) {
  const answers = await Promise.all(ids.map(async (id) => {
    try {
      return await ask(`/api/v1/jobs/${encodeURIComponent(id)}?losses=${kLossPoints}`);
    } catch (error) {
      if (error.status !== 404) throw error;
      return null;  // it is not known any more
    }
  }));
  const jobs = answers.filter((job) => job !== null && job.method !== "profile");
  if (jobs.length === 0) {
    showNothing("None of these jobs is known.");
    return kQuietInterval;
  }
  playback = null;
  document.title = `${jobs.length} jobs compared · Penstock`;
  replaceParts(byId("job"), compareView(jobs, widths()));
  return jobs.some(isActive) ? kActiveInterval : kQuietInterval;
}

// Returns how long to wait before asking again.
async function refresh() {
  const [jobs, workers] = await Promise.all([ask("/api/v1/jobs"), ask("/api/v1/workers")]);
  const current = chosen() ?? (jobs.find(isActive) ?? jobs[0])?.job_id ?? null;
  showJobs(jobs.slice(0, kJobsShown), current);
  showWorkers(workers);
  if (compared().length > 1) return refreshCompared(compared());
  if (current === null) {
    showNothing("No job has been submitted yet.");
    return kQuietInterval;
  }
  const path = `/api/v1/jobs/${encodeURIComponent(current)}`;
  try {
    const [job, live] = await Promise.all([ask(`${path}?losses=${kLossPoints}`), ask(`${path}/live`)]);
    showJob(job, live);
    if (awaitsWorkers(job, live)) return kSoonInterval;
    return isActive(job) || job.state === "queued" ? kActiveInterval : kQuietInterval;
  } catch (error) {
    if (error.status !== 404) throw error;
    showNothing(error.message);
    return kQuietInterval;
  }
}

let lostSince = null;
let lostInterval = kActiveInterval;
function showConnection(error) {
  const sign = byId("connection");
  document.body.classList.toggle("stale", error !== null);
  if (error === null) {
    lostSince = null;
    lostInterval = kActiveInterval;
    sign.className = "connection live";
    if (sign.textContent !== "live") sign.textContent = "live";
    return;
  }
  lostSince ??= new Date();
  lostInterval = Math.min(kLostIntervalMax, lostInterval * 1.5);
  sign.className = "connection lost";
  const text = `${error.message} since ${lostSince.toLocaleTimeString()}; asking again`;
  if (sign.textContent !== text) sign.textContent = text;
}

let timer = null;
let asking = false;
let askAgain = false;
async function turn() {
  if (asking) {
    askAgain = true;
    return;
  }
  asking = true;
  clearTimeout(timer);
  let wait;
  try {
    wait = await refresh();
    showConnection(null);
  } catch (error) {
    if (!(error instanceof Unanswered)) reportError(error);
    showConnection(error);
    wait = lostInterval;
  }
  asking = false;
  if (askAgain) wait = 0;
  askAgain = false;
  // Nobody looks: the workers are left alone.
  if (!document.hidden) timer = setTimeout(turn, wait);
}

addEventListener("hashchange", turn);
addEventListener("resize", () => {  // once it has its size
  clearTimeout(timer);
  timer = setTimeout(turn, 200);
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) turn();
});
turn();
