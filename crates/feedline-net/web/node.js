// Asks the node each second how it is doing, and shows it.
//
// In: the document at `stats`, the one of `feedline --json top`. Out: the page. Elements stay in place and change their text, so
// that neither focus nor a selection is lost. A node that does not answer is asked again, for as long as the page is open.

import { Looks, number } from "./looks.js";
import { Plot } from "./plot.js";

/** Milliseconds between two looks, and until a look counts as failed. */
const EVERY = 1000;
const PATIENCE = 5000;

/** What jobs may wait for. */
const CAUSES = {
  start: "first samples of a job",
  read: "reading from storage",
  prepare: "ops, on the node's cores",
  memory: "no room for more segments",
};

const looks = new Looks();
const plot = new Plot(byId("plot"), count);
let isPaused = false;

function byId(id) {
  return document.getElementById(id);
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Numbers as people read them.

function count(value) {
  const digits = value > 0 && value < 10 ? 1 : 0;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = value < 1 ? 0 : Math.min(Math.floor(Math.log10(value) / 3), units.length - 1);
  const scaled = value / 1000 ** power;
  return `${scaled.toFixed(power > 0 && scaled < 100 ? 1 : 0)} ${units[power]}`;
}

function span(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

function percent(share) {
  return `${Math.round(100 * share)} %`;
}

/** A rate that is known once there are two looks. */
function pace(rate, format = count) {
  return looks.hasRates ? format(rate) : "–";
}

// Lists: one element for each entry, made from a template, found again by its key.

function sync(parent, template, entries, keyOf, show) {
  const known = new Map([...parent.children].map((child) => [child.dataset.entry, child]));
  for (const entry of entries) {
    const key = String(keyOf(entry));
    let child = known.get(key);
    known.delete(key);
    if (child === undefined) {
      child = byId(template).content.firstElementChild.cloneNode(true);
      child.dataset.entry = key;
      parent.append(child);
    }
    show(child, entry);
  }
  for (const child of known.values()) child.remove();
}

function put(element, name, text) {
  set(element.querySelector(`[data-${name}]`), text);
}

function fill(bar, share) {
  bar.style.width = `${Math.min(1, share) * 100}%`;
}

// What is shown.

function showSummary(stats, rates) {
  const leased = stats.runs.reduce((sum, run) => sum + run.leased_samples, 0);
  const produced = stats.runs.reduce((sum, run) => sum + run.produced_samples, 0);
  set(byId("runs-count"), count(stats.runs.length));
  set(byId("jobs-count"), count(stats.jobs.length));
  set(byId("jobs-ever"), `${count(stats.jobs_attached_total)} ever`);
  set(byId("delivered"), pace(rates.delivered));
  set(byId("produced"), pace(rates.produced));
  set(byId("shared"), produced > 0 ? `${(leased / produced).toFixed(2)}×` : "–");
  set(byId("memory"), bytes(stats.live_bytes));
  set(byId("memory-limit"), `of ${bytes(stats.memory_bytes)}`);
  fill(byId("memory-bar"), stats.live_bytes / Math.max(1, stats.memory_bytes));
  set(byId("uptime"), `up ${span(stats.seconds)}`);
  byId("idle").hidden = stats.runs.length > 0;
}

function showOps(list, engine) {
  const stages = [{ name: "read", busy_seconds: engine.store.busy_seconds }, ...engine.ops];
  const all = stages.reduce((sum, stage) => sum + stage.busy_seconds, 0);
  while (list.children.length > stages.length) list.lastElementChild.remove();
  stages.forEach((stage, place) => {
    const item = list.children[place] ?? list.appendChild(document.createElement("li"));
    const name = item.querySelector("b") ?? item.appendChild(document.createElement("b"));
    const share = item.querySelector("span") ?? item.appendChild(document.createElement("span"));
    set(name, stage.name);
    set(share, ` ${percent(stage.busy_seconds / Math.max(all, 1e-9))}`);
  });
}

function showStalls(body, run) {
  sync(body, "stall-template", Object.keys(CAUSES), (cause) => cause, (row, cause) => {
    const path = `engine.stall_seconds.${cause}`;
    // Jobs wait side by side.
    const share = Math.min(1, looks.rate("runs", "key", run, path) / Math.max(1, run.jobs));
    put(row, "cause", cause);
    put(row, "meaning", CAUSES[cause]);
    put(row, "now", pace(share, percent));
    put(row, "total", `${number(run, path).toFixed(1)} s`);
    fill(row.querySelector("[data-bar]"), share);
  });
}

function showJob(row, job) {
  const waiting = Math.min(1, looks.rate("jobs", "job", job, "waited_seconds"));
  put(row, "process", String(job.process));
  put(row, "epoch", count(job.epoch));
  put(row, "samples", count(job.samples));
  put(row, "rate", pace(looks.rate("jobs", "job", job, "samples")));
  put(row, "waiting", pace(waiting, percent));
  fill(row.querySelector("[data-bar]"), waiting);
}

function showRun(section, run) {
  const rate = (path) => looks.rate("runs", "key", run, path);
  const folders = run.folder.split("/").filter((folder) => folder !== "");
  put(section, "name", folders.slice(-2).join("/") || "run");
  put(section, "key", run.key.slice(0, 8));
  put(section, "path", folders.length > 1 ? run.folder : "");
  showOps(section.querySelector("[data-ops]"), run.engine);
  put(section, "delivered", `${pace(rate("leased_samples"))}/s`);
  put(section, "produced", `${pace(rate("produced_samples"))}/s`);
  put(section, "shared", `${run.leased_per_produced.toFixed(2)}×`);
  put(section, "read", `${pace(rate("engine.store.bytes"), bytes)}/s`);
  put(section, "samples", count(run.samples));
  put(section, "segments", count(run.live_segments));
  put(section, "memory", bytes(run.live_bytes));
  put(section, "threads", count(run.engine.num_workers));
  showStalls(section.querySelector(".stalls tbody"), run);
  const jobs = looks.newest.jobs.filter((job) => job.key === run.key);
  sync(section.querySelector(".jobs tbody"), "job-template", jobs, (job) => job.job, showJob);
}

function show(stats) {
  const sum = (path) => stats.runs.reduce((all, run) => all + looks.rate("runs", "key", run, path), 0);
  const rates = { produced: sum("produced_samples"), delivered: sum("leased_samples") };
  showSummary(stats, rates);
  sync(byId("runs"), "run-template", stats.runs, (run) => run.key, showRun);
  if (looks.hasRates) plot.add({ at: performance.now() / 1000, ...rates });
  document.title = `${stats.jobs.length} jobs, ${pace(rates.delivered)}/s – feedline node`;
}

/** Says how it stands with the node: `wait`, `live`, `paused` or `gone`. */
function say(state, text) {
  const status = byId("status");
  if (status.dataset.state === state) return;
  status.dataset.state = state;
  set(status, text);
  document.body.classList.toggle("is-stale", state === "gone");
  if (state === "gone") document.title = "gone – feedline node";
}

async function look() {
  try {
    const answer = await fetch("stats", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (!answer.ok) throw new Error(`the node answers ${answer.status}`);
    looks.add(await answer.json());
  } catch {
    if (!isPaused) {
      const time = new Date().toLocaleTimeString();
      say("gone", `The node has not answered since ${time}. It is asked again each second.`);
    }
    return;
  }
  if (isPaused) return;
  say("live", "Live");
  show(looks.newest);
}

/** One loop for as long as the page is open: a pause leaves out looks. */
async function keepLooking() {
  const began = performance.now();
  if (!isPaused) await look();
  setTimeout(keepLooking, Math.max(0, EVERY - (performance.now() - began)));
}

byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  if (isPaused) say("paused", "Paused");
  else say("wait", "Asking the node");
});

keepLooking();
