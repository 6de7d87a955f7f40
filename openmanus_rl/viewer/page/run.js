// One run: is it learning, is it sound, how fast is it; and what it was told to do.
import { get, told, watch } from "./api.js";
import { chart, seriesColour } from "./charts.js";
import { fill, h, link } from "./dom.js";
import { ago, clock, number, percent, plural, seconds, shown, signed } from "./format.js";
import { status, successBar } from "./runs.js";
import { block, inline, named, plain, shortened } from "./text.js";

const CHARTS = [
  { title: "Loss", lines: [["val/loss", "held out"], ["train/loss", "training"]] },
  { title: "Preference for the success of a pair", lines: [["dpo/margin", "margin"]] },
  { title: "Pairs whose success is preferred", lines: [["dpo/accuracy", "share"]], format: percent },
  { title: "Likelihood of the successes", lines: [["dpo/chosen_nll", "negative log-likelihood"]] },
  { title: "Return", lines: [["val/episode/return/mean", "held out"], ["episode/return/mean", "training"]] },
  { title: "Turns an episode", lines: [["val/num_turns/mean", "held out"], ["num_turns/mean", "training"]] },
  { title: "Sampled tokens an episode", lines: [["val/response_length/mean", "held out"], ["response_length/mean", "training"]] },
  { title: "Invalid actions", lines: [["val/episode/invalid_actions", "held out"], ["episode/invalid_actions", "training"]], format: percent },
  { title: "Entropy", lines: [["actor/entropy", "entropy"]] },
  { title: "KL of the update", lines: [["actor/ppo_kl", "KL"]] },
  { title: "KL to the reference", lines: [["actor/kl_loss", "in the loss"], ["actor/reward_kl_penalty", "in the reward"]] },
  { title: "Engine against trainer, log-prob gap", lines: [["rollout/log_prob_gap_mean", "mean"], ["rollout/log_prob_gap_max", "max"], ["rollout/canary_gap", "probe"]] },
  { title: "Staleness", match: /(staleness.*)/ },
  { title: "Groups that teach nothing", lines: [["groups/zero_variance", "all did equally well"], ["groups/lone", "one episode only"]], format: percent },
  { title: "Gradient norm", lines: [["actor/grad_norm", "actor"], ["critic/grad_norm", "critic"], ["train/grad_norm", "model"]] },
  { title: "Value: explained variance", lines: [["critic/vf_explained_var", "critic"]] },
  { title: "Sampled tokens a second", lines: [["perf/sampled_tokens_per_second", "tokens/s"]] },
  { title: "Seconds a step, by part", stacked: true, lines: [["gen"], ["waiting"], ["old_log_prob"], ["ref"], ["values"], ["adv"], ["update_critic"], ["update_actor"], ["update_weights"], ["other"], ["testing", "validation, after it"]].map(([part, label]) => [`timing_s/${part}`, label ?? part.replaceAll("_", " ")]) },
];
const LISTED_CHECKPOINTS = 50;
const SUCCESS = ["val/success/rate", "val/success/low", "val/success/high", "success/rate"];

export async function show(place, { run }, signal) {
  const state = { byTime: false, zoom: null, extra: [], figures: [], shape: null, told: null, signal };
  const head = h("div");
  const charts = h("div");
  const rest = h("div");
  let overview = await get(["runs", run], {}, signal);
  fill(place, head, charts, rest);
  const drawAll = async () => {
    drawHead(head, overview);
    await drawCharts(charts, overview, state, again);
    drawRest(rest, overview, state);
  };
  const again = told(drawAll, place, signal);
  await drawAll();
  watch([run], told(async (states) => {
    if (JSON.stringify(states[run]) === JSON.stringify(overview.state)) return;
    overview = await get(["runs", run], {}, signal);
    await drawAll();
  }, place, signal), signal);
  window.addEventListener("theme", again, { signal });
  signal.addEventListener("abort", () => state.figures.forEach((figure) => figure.close()));
}

function drawHead(head, run) {
  const latest = run.latest;
  const progress = run.steps ? Math.min(1, (run.step ?? 0) / run.steps) : null;
  const [of, measured] = "episode/return/mean" in latest ? ["", "in training"] : ["val/", "held out"];
  const tiles = [
    ["Held-out success", run.success ? successBar(run.success) : "not measured yet", run.success ? `at step ${number(run.success.step)}` : ""],
    ["Training success", percent(latest["success/rate"] ?? null), "last step"],
    ["Return", signed(latest[`${of}episode/return/mean`] ?? null), measured],
    ["Turns", number(latest[`${of}num_turns/mean`] ?? null), measured],
    ["Speed", `${number(latest["perf/sampled_tokens_per_second"] ?? null)}`, "sampled tokens/s"],
    ["Trained for", seconds(latest["training/seconds"] ?? null), `changed ${ago(run.changed)}`],
  ];
  fill(head,
    h("div", { class: "title-row" }, h("h1", {}, named(run.name, 80)), status(run.status),
      h("span", { class: "muted" }, inline([run.env, run.algorithm].filter(Boolean).join(" · ") || "no config", 80))),
    progress !== null && h("div", { class: "progress", role: "progressbar", "aria-valuenow": Math.round(progress * 100), "aria-label": "Steps done" },
      h("span", { style: { width: `${progress * 100}%` } })),
    h("p", { class: "muted progress-text" }, run.steps || run.lines ? `step ${number(run.step)}${run.steps ? ` of ${number(run.steps)}` : ""} · ` : "",
      h("a", { href: link("run", run.name, "episodes") }, plural(run.episodes, "episode")),
      run.waiting ? ` · indexing, ${plural(run.waiting, "file")} to go` : ""),
    run.problems.length > 0 && h("div", { class: "notice warn" }, h("strong", {}, "Not all of this directory could be read."),
      h("ul", {}, run.problems.slice(0, 8).map((problem) => h("li", {}, inline(problem, 300))))),
    h("div", { class: "tiles" }, tiles.map(([name, value, below]) =>
      h("div", { class: "tile" }, h("span", { class: "tile-name" }, name), h("span", { class: "tile-value" }, value), h("span", { class: "muted" }, below)))));
}

async function drawCharts(place, run, state, again) {
  if (!run.lines) {
    fill(place, h("div", { class: "empty" }, run.status === "episodes" ? h("p", {}, "Episodes that were played outside of a run: there are no steps.")
      : [h("p", {}, "No step is written yet."), h("p", { class: "muted" }, "The first numbers come with the validation before training.")]));
    return;
  }
  const wanted = [...successCharts(run.metrics), ...CHARTS].map((spec) => ({ ...spec, lines: spec.match ? matching(run.metrics, spec.match) : spec.lines }))
    .concat(state.extra.map((name) => ({ title: name, lines: [[name, "value"]], isExtra: true })))
    .map((spec) => ({ ...spec, lines: spec.lines.filter(([name]) => run.metrics.includes(name)) }))
    .filter((spec) => spec.lines.length >= (spec.atLeast ?? 1));
  const names = [...new Set([...SUCCESS, ...wanted.flatMap((spec) => spec.lines.map(([name]) => name))])];
  const [from, to] = state.zoom ?? [null, null];
  const data = await get(["runs", run.name, "metrics"], { name: names, points: 800, from, to }, state.signal);
  const marks = marksOf(run, data, state);
  const specs = [...successSpec(run, data, state), ...wanted.map((spec) => ({ ...spec, lines: spec.lines.map(([name, label], index) =>
    ({ label, ...column(data, name, state.byTime), colour: seriesColour(index), format: spec.format })) }))];
  const shape = JSON.stringify([state.byTime, state.zoom, data.share > 1, seriesColour(0), specs.map((spec) => [spec.title, spec.lines.map((line) => line.label)])]);
  if (shape === state.shape) {
    state.figures.forEach((figure, index) => figure.update(specs[index].lines, marks));
    return;
  }
  state.shape = shape;
  const onzoom = (low, high) => { state.zoom = stepsAround(data, low, high, state.byTime); again(); };
  place.style.setProperty("min-height", `${place.clientHeight}px`); // else the page jumps while the charts are made anew
  const focused = state.figures.indexOf(document.activeElement);
  state.figures.forEach((figure) => figure.close());
  const hero = h("div", { class: "hero" });
  const grid = h("div", { class: "charts" });
  fill(place, chartBar(run, state, data, again), hero, grid);
  state.figures = specs.map((spec) => chart(spec.isHero ? hero : grid, { ...spec, marks, byTime: state.byTime, onzoom }));
  state.figures[focused]?.focus({ preventScroll: true });
  place.style.removeProperty("min-height");
}

function chartBar(run, state, data, again) {
  const others = run.metrics.filter((name) => !SUCCESS.includes(name));
  const choice = h("select", { "aria-label": "Add a chart" }, h("option", { value: "" }, "Add a chart …"), others.map((name) => h("option", { value: name }, plain(name))));
  choice.addEventListener("change", () => { if (choice.value) { state.extra.push(choice.value); again(); } });
  const axis = h("button", { type: "button", class: "button", "aria-pressed": String(state.byTime), onclick: () => { state.byTime = !state.byTime; again(); } },
    state.byTime ? "by time" : "by step");
  return h("div", { class: "toolbar" }, axis, choice,
    state.zoom && h("button", { type: "button", class: "button", onclick: () => { state.zoom = null; again(); } }, "Show all steps"),
    h("span", { class: "muted" }, data.share > 1 ? `each point is the mean of ${data.share} steps; drag, or press +, to look closer` : "drag on a chart, or press + on it, to look closer"),
    h("span", { class: "muted marks-key" }, "▲ checkpoint", h("span", { class: "dash" }), "event"));
}

/** The chart above the others; none for a run that measures no success. */
function successSpec(run, data, state) {
  if (!SUCCESS.some((name) => run.metrics.includes(name))) return [];
  const line = (name, label, colour, more = {}) => ({ label, ...column(data, name, state.byTime), colour, format: percent, ...more });
  const held = column(data, "val/success/rate", state.byTime);
  const lines = [];
  if (held.x.length) {
    lines.push(line("val/success/low", "low", seriesColour(0), { hidden: true }), line("val/success/high", "high", seriesColour(0), { hidden: true }),
      line("val/success/rate", "held out", seriesColour(0), { width: 2.5, dots: held.x.length < 60 }));
  }
  lines.push(line("success/rate", "training", seriesColour(1), { width: 1.25 }));
  return [{ isHero: true, title: "Success", note: "held-out tasks with their 95 % interval", lines, bands: held.x.length ? [[0, 1, lines[2]]] : [],
    height: 260, range: () => [0, 1] }];
}

/** Held-out success by world, and in each world by difficulty; not where that is the same line again. */
function successCharts(names) {
  const parts = names.map((name) => /^val\/success\/([^/]+)(?:\/([^/]+))?\/rate$/.exec(name)).filter(Boolean);
  const worlds = [...new Set(parts.map(([, world]) => world))];
  return [
    { title: "Held-out success by world", lines: parts.filter(([, , level]) => !level).map(([name, world]) => [name, world]) },
    ...worlds.map((world) => ({ title: `Held-out success in ${world} by difficulty`,
      lines: parts.filter(([, of, level]) => of === world && level).map(([name, , level]) => [name, level]) })),
  ].map((spec) => ({ ...spec, atLeast: 2, format: percent }));
}

export function column(data, name, byTime) {
  const sparse = data.sparse[name];
  if (sparse) return { x: byTime ? sparse.time : sparse.step, y: sparse.values };
  return data.columns[name] ? { x: byTime ? data.time : data.step, y: data.columns[name] } : { x: [], y: [] };
}

function matching(names, pattern) {
  return names.filter((name) => pattern.test(name)).map((name) => [name, pattern.exec(name)[1]]);
}

/** Events and checkpoints as marks; an event without a step stands at the step that was written next. */
function marksOf(run, data, { byTime, zoom }) {
  const stepAt = (time) => {
    const isOutside = time < data.time[0] || time > data.time.at(-1);
    return zoom && isOutside ? null : data.step[data.time.findIndex((other) => other >= time)] ?? data.step.at(-1);
  };
  const events = run.events.filter((event) => event.event !== "checkpoint").map((event) => ({
    x: byTime ? event.time : event.step ?? stepAt(event.time),
    kind: event.event === "guard" || event.event === "restarted" ? "alarm" : "event",
    text: [event.event, event.cause ?? event.reason].filter(Boolean).join(": ").slice(0, 80),
  }));
  const made = new Map([...run.checkpoints, ...run.events.filter((event) => event.event === "checkpoint")].map((saved) => [saved.step, saved]));
  const saved = [...made.values()].map(({ step, time }) => ({ x: byTime ? time : step, kind: "checkpoint", text: `checkpoint ${step}` }));
  return [...events, ...saved].filter((mark) => mark.x !== undefined && mark.x !== null);
}

/** From the last step before to the first after: between two steps there is nothing to see. */
function stepsAround(data, low, high, byTime) {
  const places = byTime ? data.time : data.step;
  const first = places.findLastIndex((place) => place !== null && place <= low);
  const last = places.findIndex((place) => place !== null && place >= high);
  return [data.step[Math.max(0, first)], data.step.at(last)];
}

function drawRest(place, run, state) {
  const told = JSON.stringify([run.breakdown, run.events, run.preset, run.config]);
  if (told === state.told) return;
  state.told = told;
  const open = Object.fromEntries([...place.querySelectorAll("details")].map((details) => [details.dataset.name, details.open]));
  const fold = (name, title, isOpen, ...children) => h("details", { dataset: { name }, open: open[name] ?? isOpen }, h("summary", {}, title), children);
  fill(place,
    run.breakdown.length > 0 && fold("breakdown", `By world and difficulty (validation at step ${run.breakdown[0].step})`, true, breakdown(run)),
    fold("events", `What happened (${run.events.length})`, run.events.length < 12, events(run)),
    fold("preset", run.preset ? `What differs from ${plain(shortened(run.preset.name ?? "the preset"))} (${Object.keys(run.preset.changed).length})` : "What differs from the preset", Boolean(run.preset), presetChanges(run)),
    fold("config", "The resolved config", false, h("div", { class: "config" }, tree(run.config))));
}

function breakdown(run) {
  return h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, ["World", "Difficulty", "Success", "Return", "Turns", ""].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, run.breakdown.map((part) => h("tr", {}, h("th", { scope: "row" }, inline(part.env, 60)), h("td", {}, inline(part.difficulty || "–", 60)),
      h("td", {}, successBar(part)), h("td", { class: "figure" }, signed(part.return)), h("td", { class: "figure" }, number(part.turns)),
      h("td", {}, h("a", { href: link("run", run.name, "episodes") + "?" + new URLSearchParams({ kind: "validation", env: part.env, difficulty: part.difficulty, first_step: part.step, last_step: part.step }) }, "episodes")))))));
}

function events(run) {
  if (!run.events.length) return h("p", { class: "empty" }, "Nothing is written of it.");
  const saved = run.events.filter((event) => event.event === "checkpoint");
  const left = new Set(saved.slice(0, -LISTED_CHECKPOINTS)); // they are on the axes
  return h("div", { class: "scroll" }, h("table", { class: "list" }, h("tbody", {}, run.events.filter((event) => !left.has(event)).reverse().map((event) => {
    const { event: name, time, ...details } = event;
    return h("tr", {}, h("td", { class: "muted when" }, time ? clock(time) : "–"), h("th", { scope: "row" }, inline(name, 60)),
      h("td", {}, inline(Object.entries(details).map(([key, value]) => `${key} ${typeof value === "number" ? number(value) : shown(value)}`).join(" · "), 400)));
  }))));
}

function presetChanges(run) {
  if (!run.preset) return h("p", { class: "empty" }, "The run does not say which preset it was made from.");
  const rows = Object.entries(run.preset.changed);
  if (!rows.length) return h("p", { class: "empty" }, "Nothing: it is the preset as it stands.");
  return h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, ["Key", "Preset", "This run"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map(([key, [before, now]]) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, inline(key, 80))), h("td", {}, inline(shown(before))), h("td", {}, h("b", {}, inline(shown(now)))))))));
}

function tree(value) {
  if (value === null || typeof value !== "object") return h("span", { class: "leaf" }, block(shown(value), 400));
  return h("dl", { class: "tree" }, Object.entries(value).map(([key, entry]) => h("div", {}, h("dt", {}, inline(key, 80)), h("dd", {}, tree(entry)))));
}
