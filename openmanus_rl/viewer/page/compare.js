// Several runs over each other: their curves, what they were told, and whether their success differs by more than noise.
import { get, told, watch } from "./api.js";
import { chart, seriesColour } from "./charts.js";
import { fill, h, link } from "./dom.js";
import { number, percent, seconds, shown } from "./format.js";
import { column } from "./run.js";
import { status, successBar } from "./runs.js";
import { inline, named } from "./text.js";

const CHARTS = [
  ["Held-out success", "val/success/rate", percent],
  ["Training success", "success/rate", percent],
  ["Return", "episode/return/mean"],
  ["Turns an episode", "num_turns/mean"],
  ["Sampled tokens an episode", "response_length/mean"],
  ["Invalid actions", "episode/invalid_actions", percent],
  ["Entropy", "actor/entropy"],
  ["KL of the update", "actor/ppo_kl"],
  ["Sampled tokens a second", "perf/sampled_tokens_per_second"],
];

export async function show(place, { words }, signal) {
  const { runs } = await get(["runs"], {}, signal);
  const names = runs.map((run) => run.name);
  const chosen = words.getAll("run").filter((name) => names.includes(name)).slice(0, 8);
  const state = { byTime: false, figures: [], shape: null, told: null };
  const picker = h("div", { class: "picker", role: "group", "aria-label": "Runs to compare" }, names.map((name) => {
    const index = chosen.indexOf(name);
    return h("button", { type: "button", class: "button pick", "aria-pressed": String(index >= 0), onclick: () => {
      const next = index >= 0 ? chosen.filter((other) => other !== name) : [...chosen, name];
      location.hash = "#/compare?" + next.map((other) => `run=${encodeURIComponent(other)}`).join("&");
    } }, index >= 0 && key(index), named(name));
  }));
  const [verdict, charts, config] = [h("div"), h("div"), h("div")];
  fill(place, h("h1", {}, "Compare"), picker, verdict, charts, config);
  if (chosen.length < 2) {
    fill(charts, h("div", { class: "empty" }, h("p", {}, names.length < 2 ? "There is only one run here: open the directory of runs to compare some." : "Choose two runs or more.")));
    return;
  }
  let drawn = null;
  const draw = async () => {
    const [compared, ...data] = await Promise.all([
      get(["compare"], { run: chosen }, signal),
      ...chosen.map((name) => get(["runs", name, "metrics"], { name: [...CHARTS.map(([, metric]) => metric), "val/success/low", "val/success/high"], points: 500 }, signal)),
    ]);
    drawn = JSON.stringify(Object.fromEntries(compared.runs.map((run) => [run.name, run.state])));
    fill(verdict, verdicts(compared));
    drawCharts(charts, CHARTS.map((spec, index) => overlay(spec, chosen, data, state.byTime, index === 0)).filter(Boolean), state, again);
    const differing = JSON.stringify([compared.config, seriesColour(0)]);
    if (differing !== state.told) fill(config, configTable(compared));
    state.told = differing;
  };
  const again = told(draw, place, signal);
  await draw();
  watch(chosen, (states) => { if (JSON.stringify(states) !== drawn) again(); }, signal);
  window.addEventListener("theme", again, { signal });
  signal.addEventListener("abort", () => state.figures.forEach((figure) => figure.close()));
}

function key(index) {
  return h("span", { class: "key", style: { "--key": seriesColour(index) } });
}

/** The same charts with new values, or new ones where there are others to draw. */
function drawCharts(place, specs, state, again) {
  const shape = JSON.stringify([state.byTime, seriesColour(0), specs.map((spec) => [spec.title, spec.lines.map((line) => line.label)])]);
  if (shape === state.shape) {
    state.figures.forEach((figure, index) => figure.update(specs[index].lines));
    return;
  }
  state.shape = shape;
  const focused = state.figures.indexOf(document.activeElement);
  state.figures.forEach((figure) => figure.close());
  const grid = h("div", { class: "charts" });
  const hero = h("div", { class: "hero" });
  const axis = h("button", { type: "button", class: "button", "aria-pressed": String(state.byTime), onclick: () => { state.byTime = !state.byTime; again(); } }, state.byTime ? "by time" : "by step");
  fill(place, h("div", { class: "toolbar" }, axis), hero, grid);
  state.figures = specs.map((spec) => chart(spec.isHero ? hero : grid, spec));
  state.figures[focused]?.focus({ preventScroll: true });
}

function overlay([title, metric, format], names, data, byTime, isHero) {
  const begun = (part) => (byTime ? Math.min(...part.time.filter((time) => time !== null)) : 0);
  const lines = names.map((name, index) => {
    const { x, y } = column(data[index], metric, byTime);
    return { label: name, x: byTime ? since(x, begun(data[index])) : x, y, colour: seriesColour(index), format, width: isHero ? 2.25 : 1.5, dots: isHero && x.length < 40 };
  }).filter((line) => line.x.length);
  if (!lines.length) return null;
  if (isHero) lines.push(...lines.flatMap((line) => interval(line, data[names.indexOf(line.label)], byTime, begun)));
  const bands = isHero ? lines.filter((line) => line.edge === "low").map((line) => [lines.indexOf(line), lines.indexOf(line) + 1, line.of]) : [];
  return { isHero, bands, title, note: byTime ? "seconds since each began" : null, where: byTime ? (past) => `after ${seconds(past)}` : undefined, lines, height: isHero ? 260 : 190, range: isHero ? () => [0, 1] : undefined };
}

function since(times, start) {
  return times.map((time) => (time === null ? null : time - start));
}

/** The lower and the upper edge of a run's interval. */
function interval(line, data, byTime, begun) {
  return ["low", "high"].map((edge) => {
    const { x, y } = column(data, `val/success/${edge}`, byTime);
    return { label: edge, edge, of: line, x: byTime ? since(x, begun(data)) : x, y, colour: line.colour, hidden: true };
  });
}

function verdicts({ runs, baseline }) {
  return h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, ["Run", "", baseline ? ["Against ", named(baseline)] : "Difference", "Last held-out success", "At step", ""].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, runs.map((run, index) => h("tr", {},
      h("th", { scope: "row" }, key(index), h("a", { href: link("run", run.name) }, named(run.name))),
      verdict(run, baseline), h("td", {}, successBar(run.success)), h("td", { class: "figure" }, number(run.success?.step ?? null)), h("td", {}, status(run.status)))))));
}

function verdict(run, baseline) {
  if (run.name === baseline) return [h("td"), h("td", { class: "muted" }, "the baseline")];
  if (!run.difference) return [h("td"), h("td", { class: "muted" }, "not measured")];
  const { rate, low, high, outside_noise: isOutside } = run.difference;
  const points = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(100 * value).toFixed(1)}`;
  return [
    h("td", {}, h("span", { class: `badge ${isOutside ? (rate > 0 ? "success" : "miss") : "even"}` }, isOutside ? (rate > 0 ? "better, outside the noise" : "worse, outside the noise") : "within the noise")),
    h("td", { class: "difference", title: "Newcombe's 95 % interval of the difference: the noise of these episodes, not that of other seeds" }, h("b", {}, `${points(rate)} points`), h("span", { class: "muted" }, ` [${points(low)}, ${points(high)}]`),
      run.measured_otherwise.length > 0 && h("div", { class: "caveat" }, `not measured alike: ${run.measured_otherwise.join("; ")}`)),
  ];
}

function configTable({ runs, config }) {
  return h("details", { open: config.length <= 30 }, h("summary", {}, `Where their configs differ (${config.length})`),
    config.length ? h("div", { class: "scroll" }, h("table", { class: "list" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Key"), runs.map((run) => h("th", { scope: "col" }, named(run.name))))),
      h("tbody", {}, config.map(({ key, values }) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, inline(key, 80))), values.map((value) => h("td", {}, inline(shown(value), 120)))))))) : h("p", { class: "empty" }, "Nowhere."));
}
