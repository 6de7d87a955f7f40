// Charts over steps or time: lines, a band, marks for what happened.
import uPlot from "./vendor/uPlot.esm.js";
import { h } from "./dom.js";
import { number, percent } from "./format.js";
import { plain, shortened } from "./text.js";

function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const COLOURS = 8;

export function seriesColour(index) {
  return token(`--s${index % COLOURS}`);
}

/**
 * `lines`: [{label, x, y, colour, width, dots, format, hidden}], each with its own x values; `bands`: indexes of
 * the lines below and above, and the line whose colour it has; `stacked`: areas on top of each other; `marks`: [{x, kind, text}].
 * Lines beyond the eighth have the first ones' colours, dashed. `where` says in words which x the cursor is at.
 */
export function chart(place, { title, note, lines, bands = [], stacked, marks = [], byTime, where = byTime ? atTime : atStep, height = 190, range, onzoom }) {
  const now = { lines, marks, columns: [] };
  const readout = h("div", { class: "readout", "aria-live": "polite" });
  const body = h("div", { class: "plot" });
  const figure = h("figure", { class: "chart", tabindex: "0" },
    h("figcaption", {}, h("span", { class: "chart-title" }, plain(title)), note && h("span", { class: "muted" }, ` ${note}`), readout), body);
  place.append(figure);
  const data = () => {
    const [xs, columns] = joined(stacked ? aligned(now.lines) : now.lines);
    now.columns = columns;
    figure.setAttribute("aria-label", plain(`${title}: ${spoken(now.lines)}`));
    return [xs, ...(stacked ? stack(columns) : columns)];
  };
  const axis = { stroke: token("--muted"), grid: { stroke: token("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const options = {
    width: Math.max(200, body.clientWidth),
    height,
    legend: { show: false },
    padding: [10, 24, 0, 0],
    cursor: { points: { size: 6 }, drag: { x: true, y: false, setScale: !onzoom }, focus: { prox: 24 } },
    scales: { x: { time: Boolean(byTime), range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) }, y: { range: range ?? (stacked ? rangeFromZero : paddedRange) } },
    axes: [
      { ...axis, size: byTime ? 40 : 26, space: 60, incrs: byTime ? undefined : WHOLE, values: byTime ? clockTicks : undefined },
      { ...axis, size: 52, values: (_, values) => ticks(values, lines[0]?.format) },
    ],
    series: [{}, ...lines.map((line, index) => ({
      label: line.label,
      stroke: line.hidden ? "transparent" : line.colour,
      width: line.hidden ? 0 : line.width ?? 1.75,
      dash: index < COLOURS ? undefined : [5, 3],
      fill: stacked ? alpha(line.colour, 0.55) : undefined,
      spanGaps: !stacked,
      points: { show: (_, series) => !line.hidden && (Boolean(line.dots) || now.lines[series - 1].x.length === 1), size: 5, fill: line.colour, stroke: line.colour },
    }))],
    bands: filled(bands, stacked, lines),
    hooks: {
      draw: [(plot) => drawMarks(plot, now.marks), (plot) => drawLoneIntervals(plot, bands, now.lines)],
      setCursor: [(plot) => tell(readout, plot, now, where)],
      setSelect: [(plot) => {
        if (!onzoom || plot.select.width < 4) return;
        onzoom(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
      }],
    },
  };
  const plot = new uPlot(options, data(), body);
  tell(readout, plot, now, where);
  const observer = new ResizeObserver(() => {
    if (body.clientWidth && Math.abs(body.clientWidth - plot.width) > 1) plot.setSize({ width: body.clientWidth, height });
  });
  observer.observe(body);
  figure.addEventListener("keydown", (event) => walk(event, plot, onzoom));
  figure.addEventListener("blur", () => plot.setCursor({ left: -10, top: -10 }));
  /** The same lines with new values. */
  figure.update = (newLines, newMarks = []) => {
    const { min, max } = plot.scales.x;
    const isCloser = !onzoom && (min > plot.data[0][0] || max < plot.data[0].at(-1));
    Object.assign(now, { lines: newLines, marks: newMarks });
    plot.setData(data(), !isCloser);
    if (isCloser) plot.setScale("x", { min, max });
    tell(readout, plot, now, where);
  };
  figure.close = () => {
    observer.disconnect();
    plot.destroy();
    figure.remove();
  };
  return figure;
}

/** Arrows move the cursor from value to value, + looks closer around it. */
function walk(event, plot, onzoom) {
  const last = plot.data[0].length - 1;
  const at = plot.cursor.idx ?? (event.key === "ArrowLeft" ? last + 1 : -1);
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
  if (next !== undefined && last >= 0) {
    event.preventDefault();
    const x = plot.data[0][Math.max(0, Math.min(last, next))];
    plot.setCursor({ left: plot.valToPos(x, "x"), top: plot.over.clientHeight / 2 });
  } else if (event.key === "+" && onzoom && plot.cursor.idx !== null && plot.cursor.idx !== undefined) {
    const { min, max } = plot.scales.x;
    const x = plot.data[0][plot.cursor.idx];
    onzoom(Math.max(min, x - (max - min) / 4), Math.min(max, x + (max - min) / 4));
  }
}

/** Steps are whole: so are the numbers below the chart. */
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000];

/** With as many digits as it takes to tell them apart. */
export function ticks(values, format = number) {
  const fewest = format === percent ? 1 : 3;
  const labels = (digits) => values.map((value) => format(value, digits).replace(/\.0+ %/, " %"));
  const digits = [0, 1, 2, 3, 4, 5].map((more) => fewest + more).find((count) => new Set(labels(count)).size === values.length);
  return labels(digits ?? fewest);
}

/** By the clock of 24 hours; the day where it begins. */
export function clockTicks(_, values, __, ___, apart) {
  let before = null;
  return values.map((value) => {
    const at = new Date(value * 1000);
    const day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    if (apart >= 86400) return day;
    const time = at.toLocaleTimeString("en-GB", apart < 60 ? {} : { hour: "2-digit", minute: "2-digit" });
    const isNew = day !== before;
    before = day;
    return isNew ? `${time}\n${day}` : time;
  });
}

/** Parts of one whole are told at the same places: a part that is measured now and then at the next place of the others. */
export function aligned(lines) {
  const places = lines.reduce((longest, { x }) => (x.length > longest.length ? x : longest), []);
  return lines.map((line) => ({ ...line, x: line.x.map((x) => (x < places[0] ? x : places.find((place) => place >= x) ?? x)) }));
}

/** Columns of different x values on the union of them, null where a line has none. */
function joined(lines) {
  const xs = [...new Set(lines.flatMap((line) => line.x))].filter((x) => x !== null).sort((a, b) => a - b);
  const place = new Map(xs.map((x, index) => [x, index]));
  const columns = lines.map((line) => {
    const column = new Array(xs.length).fill(null);
    line.x.forEach((x, index) => { if (place.has(x)) column[place.get(x)] = line.y[index]; });
    return column;
  });
  return [xs, columns];
}

/** Each column on top of those before it; nothing where none of them has a value. */
export function stack(columns) {
  const sums = (columns[0] ?? []).map((_, index) => (columns.every((column) => column[index] === null) ? null : 0));
  return columns.map((column) => column.map((value, index) => (sums[index] === null ? null : (sums[index] += value ?? 0))));
}

function filled(bands, stacked, lines) {
  if (stacked) return lines.slice(1).map((line, index) => ({ series: [index + 2, index + 1], fill: alpha(line.colour, 0.55) }));
  return bands.map(([low, high, line]) => ({ series: [high + 1, low + 1], fill: alpha(line.colour, 0.16) }));
}

function paddedRange(_, low, high) {
  if (low === null || low === undefined) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

function rangeFromZero(_, __, high) {
  return [0, high > 0 ? high * 1.08 : 1];
}

function alpha(colour, share) {
  return `color-mix(in srgb, ${colour} ${Math.round(share * 100)}%, transparent)`;
}

function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  const scale = devicePixelRatio || 1;
  ctx.save();
  for (const mark of marks) {
    const x = plot.valToPos(mark.x, "x", true);
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) continue;
    ctx.fillStyle = ctx.strokeStyle = token(mark.kind === "checkpoint" ? "--muted" : mark.kind === "alarm" ? "--bad" : "--accent");
    if (mark.kind === "checkpoint") {
      const base = bbox.top + bbox.height;
      ctx.beginPath();
      ctx.moveTo(x - 4 * scale, base);
      ctx.lineTo(x + 4 * scale, base);
      ctx.lineTo(x, base - 6 * scale);
      ctx.fill();
    } else {
      ctx.setLineDash([4 * scale, 3 * scale]);
      ctx.lineWidth = scale;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
  }
  ctx.restore();
}

/** A band needs two places: where there is only one, its interval is a bar. */
function drawLoneIntervals(plot, bands, lines) {
  const { ctx } = plot;
  const scale = devicePixelRatio || 1;
  ctx.save();
  for (const [low, high, { colour }] of bands) {
    if (lines[low].x.length !== 1 || lines[high].x.length !== 1) continue;
    const x = plot.valToPos(lines[low].x[0], "x", true);
    const [bottom, top] = [low, high].map((edge) => plot.valToPos(lines[edge].y[0], "y", true));
    ctx.strokeStyle = colour;
    ctx.lineWidth = 2 * scale;
    ctx.beginPath();
    ctx.moveTo(x, bottom);
    ctx.lineTo(x, top);
    for (const end of [bottom, top]) {
      ctx.moveTo(x - 4 * scale, end);
      ctx.lineTo(x + 4 * scale, end);
    }
    ctx.stroke();
  }
  ctx.restore();
}

/** The values under the cursor, else the last ones. */
function tell(readout, plot, { lines, columns, marks }, where) {
  const xs = plot.data[0];
  const at = plot.cursor.idx ?? null;
  const entries = lines.map((line, index) => {
    if (line.hidden) return null;
    const value = at === null ? columns[index].findLast((entry) => entry !== null) : columns[index][at];
    return h("span", { class: "reading" }, h("span", { class: index < COLOURS ? "key" : "key dashed", style: { "--key": line.colour } }),
      `${plain(shortened(line.label))} `, h("b", {}, (line.format ?? number)(value ?? null)));
  });
  const reach = xs.length > 1 ? (plot.scales.x.max - plot.scales.x.min) / 60 : 0;
  const near = at === null ? [] : marks.filter((mark) => Math.abs(mark.x - xs[at]) <= reach).slice(0, 3);
  readout.replaceChildren(...[at !== null && h("span", { class: "reading muted" }, where(xs[at])), ...entries,
    ...near.map((mark) => h("span", { class: "reading accent" }, plain(mark.text)))].filter(Boolean));
}

function atStep(step) {
  return `step ${number(step)}`;
}

function atTime(time) {
  return new Date(time * 1000).toLocaleTimeString("en-GB");
}

function spoken(lines) {
  return lines.filter((line) => !line.hidden)
    .map((line) => `${line.label} ${(line.format ?? number)(line.y.findLast((value) => value !== null) ?? null)}`).join(", ");
}
