// What happened over time: charts of throughput, members and metrics on one axis of time or of steps, with the
// plans and problems as marks. One range of that axis and one cursor are common to all charts.
const PROBLEMS = new Set(["MemberLost", "ProcessFailed", "ProcessRestarted", "NodeUnfit", "Stalled", "RestartedForStall",
  "StragglerFound", "WorldNotTaken", "StateOutdated", "ShardsFailed"]);
const NEAR = 8; // pixels
const past = { samples: [], other: [], intervals: [], pauses: [], marks: [], plots: [], titles: [], shape: "", view: null, last: 0, shown: null, plot: null, steps: false, log: false };
const LONGEST_WHY = 240;
const WITHOUT_CHANGE = new Set(["Superseded", "Cancelled"]); // phases of plans that have changed nothing
const LEAST_PAUSE = 5; // seconds

function overTime(samples, plans, events) {
  const inTime = samples.filter(each => drawable(each.time) !== null).sort((one, other) => one.time - other.time);
  const usable = (past.steps ? ofSteps(inTime) : inTime).map(each => ({ ...each, x: past.steps ? each.step : each.time }));
  past.samples = usable;
  past.other = laidOver(inTime);
  past.intervals = usable.slice(1).map((each, position) => interval(usable[position], each)).filter(Boolean);
  past.pauses = past.intervals.filter(each => each.pause);
  past.marks = [
    ...plans.filter(each => each.created).map(each => ({ time: each.created, plan: true, bad: each.phase === "Failed", pale: WITHOUT_CHANGE.has(each.phase),
      text: `${each.name} (${[each.source, each.phase].filter(Boolean).join(", ")})`, why: each.reason || each.message })),
    ...events.filter(each => PROBLEMS.has(each.reason)).map(each => ({ time: each.time, bad: true, text: each.reason,
      why: each.message })),
  ].sort((one, other) => one.time - other.time).map(each => ({ ...each, x: xAt(each.time) }));
  const names = [...new Set(usable.flatMap(each => Object.keys(each.metrics || {})))].slice(0, 8);
  const shape = JSON.stringify([names, past.intervals.length > 0, past.steps, past.log, compared.name]);
  if (shape !== past.shape) {
    past.shape = shape;
    build(names);
  }
  past.plots.forEach((plot, position) => plot.setData(columns(past.titles[position].read), false));
  rescale();
  readout();
}

// Of steps that were trained again, the last time counts.
function ofSteps(samples) {
  let least = Infinity;
  const kept = [];
  for (const each of [...samples].reverse()) if (each.step < least) {
    least = each.step;
    kept.unshift(each);
  }
  return kept;
}
function xAt(time) {
  if (!past.steps || !past.samples.length) return time;
  const after = past.samples.findIndex(each => each.time >= time);
  if (after <= 0) return past.samples.at(after).x;
  const [one, other] = past.samples.slice(after - 1, after + 1);
  return one.x + (other.x - one.x) * (time - one.time) / (other.time - one.time);
}

// What the time between two samples went into: the shares from below, and whether there was nothing to measure.
function interval(one, other) {
  const spent = SPENT.map(([field, className]) => [(other.spent?.[field] || 0) - (one.spent?.[field] || 0), className.slice(2), field]);
  const all = spent.reduce((sum, [seconds]) => sum + Math.max(seconds, 0), 0);
  if (!one.spent || !other.spent || all <= 0) return null;
  const paused = spent.filter(([, , field]) => PAUSES.has(field)).reduce((sum, [seconds]) => sum + Math.max(seconds, 0), 0);
  return { from: one, to: other, pause: paused > all / 2 && paused > LEAST_PAUSE,
    parts: spent.filter(([seconds]) => seconds > 0).map(([seconds, name]) => [seconds / all, name]),
    share: Math.max(spent[0][0], 0) / all };
}
const PAUSES = new Set(["suspended", "waiting", "withoutMaster"]);

const column = (samples, read) => [samples.map(each => each.x), samples.map(each => drawable(read(each)))];
const columns = read => compared.name ? uPlot.join([column(past.samples, read), column(past.other, read)]) : column(past.samples, read);

function build(names) {
  const target = by("charts");
  for (const plot of past.plots) plot.destroy();
  past.plot = past.shown = null;
  target.replaceChildren();
  past.titles = [
    { name: "Throughput, samples/s", read: each => each.samples_per_second, bounds: BOUNDS.fromZero, height: 130, area: true },
    ...past.intervals.length ? [{ name: "Time went into", read: () => null, bounds: () => [0, 1], height: 26, strip: true }] : [],
    { name: "World size, members", read: each => each.world_size, bounds: BOUNDS.members, height: 80, stepped: true, stroke: "good" },
    ...names.map(name => past.log ? { name, read: each => each.metrics[name] > 0 ? each.metrics[name] : null, bounds: BOUNDS.log, height: 100, log: true }
      : { name, read: each => each.metrics[name], bounds: BOUNDS.around, height: 100 }),
  ];
  past.plots = past.titles.map((each, position) => {
    const title = put(target, "div", undefined, "chart-title");
    put(title, "span", each.name).title = each.name;
    each.value = put(title, "b");
    return timeChart(put(target, "div"), target.clientWidth, columns(each.read), {
      ...each, last: position === past.titles.length - 1, time: !past.steps, range: bounds, marks: () => past.marks, pauses: () => past.pauses, intervals: () => past.intervals,
      both: compared.name !== "", onCursor: moved, onSelect: view => zoom(view),
    });
  });
}

// The shown range. A range that follows is the last so many seconds.
function bounds() {
  const first = Math.min(past.samples[0]?.x ?? 0, past.other[0]?.x ?? Infinity);
  const latest = Math.max(past.samples.at(-1)?.x ?? 1, past.other.at(-1)?.x ?? -Infinity);
  if (past.view) return past.view;
  const from = past.last ? Math.max(first, xAt((past.samples.at(-1)?.time ?? 0) - past.last)) : first;
  return [from, Math.max(latest, from + 10)];
}
function rescale() {
  const [min, max] = bounds();
  for (const plot of past.plots) plot.setScale("x", { min, max });
}
function zoom(view, last = 0) {
  past.view = view;
  past.last = last;
  for (const button of document.querySelectorAll("[data-range]"))
    button.setAttribute("aria-pressed", String(!view && Number(button.dataset.range) === last));
  rescale();
}
function change(how) {
  const [from, to] = bounds(), width = to - from, first = past.samples[0]?.x, latest = past.samples.at(-1)?.x;
  if (first === undefined) return;
  const centre = past.shown !== null && past.samples[past.shown] ? past.samples[past.shown].x : (from + to) / 2;
  const inside = Math.min(Math.max(centre, from), to);
  const [factor, shift] = { in: [0.5, 0], out: [2, 0], earlier: [1, -0.25], later: [1, 0.25] }[how];
  const start = factor === 1 ? from + shift * width : inside - (inside - from) * factor, wide = Math.max(width * factor, 5);
  if (how === "out" && start <= first && start + wide >= latest) return zoom(null);
  const least = Math.min(start, latest - 1);
  zoom([Math.max(least, first - wide / 2), Math.max(least, first - wide / 2) + wide]);
}

let moving = false;
function moved(plot) {
  if (moving) return;
  moving = true;
  const index = plot.cursor.idx;
  past.shown = plot.cursor.left >= 0 && index !== undefined && index !== null
    ? Math.max(past.samples.findLastIndex(each => each.x <= plot.data[0][index]), 0) : null;
  past.plot = past.shown === null ? null : plot;
  readout();
  moving = false;
}
// Without a cursor, the latest values are shown.
function readout() {
  const { plot } = past;
  const index = past.shown ?? past.samples.length - 1, sample = past.samples[index], target = by("readout");
  const during = sample && past.intervals.find(each => each.to === sample);
  const reached = plot ? plot.posToVal(plot.cursor.left, "x") : sample?.x, other = past.other.findLast(each => each.x <= reached);
  past.titles.forEach(each => write(each.value, each.strip ? during ? `${percent(during.share)} training` : ""
    : sample ? [sample, other].filter(Boolean).map(one => text(each.read(one))).join(" \u00b7 ") : ""));
  target.replaceChildren();
  if (!sample) {
    target.textContent = "No samples yet; they begin with the first reported step.";
    return;
  }
  put(target, "b", past.shown === null ? `Latest, ${clock(sample.time)}` : clock(sample.time));
  target.append(` · step ${grouped(sample.step)} · round ${sample.round} · world of ${sample.world_size}`);
  const at = plot ? plot.cursor.left : null;
  const near = plot ? past.marks.filter(mark => Math.abs(plot.valToPos(mark.x, "x") - at) < NEAR) : past.shown === null
    ? past.marks.filter(mark => mark.plan).slice(-1) : [];
  for (const mark of near.slice(-3)) {
    put(target, "br");
    put(target, "span", plot ? `${clock(mark.time)} ${mark.text}` : `Last plan, ${clock(mark.time)}: ${mark.text}`,
      mark.bad ? "bad" : "plan");
    if (mark.why) target.append(`: ${mark.why.length > LONGEST_WHY ? `${mark.why.slice(0, LONGEST_WHY)}…` : mark.why}`);
  }
}
const text = value => drawable(value) === null ? "-" : value === 0 ? "0" : number(value, 5);

// Puts the cursor of all charts at a time or step, as the mouse would.
function pointAt(x) {
  const plot = past.plots[0];
  if (!plot || !past.samples.length) return;
  const [from, to] = bounds();
  if (x < from || x > to) zoom([x - (to - from) / 2, x + (to - from) / 2]);
  plot.setCursor({ left: plot.valToPos(x, "x"), top: 10 }, true, true);
}
function step(direction) {
  const from = past.shown ?? (direction < 0 ? past.samples.length : -1);
  const sample = past.samples[Math.min(Math.max(from + direction, 0), past.samples.length - 1)];
  if (sample) pointAt(sample.x);
}
function nextPlan(direction) {
  const now = past.shown === null ? Infinity * -direction : past.plots[0].posToVal(past.plots[0].cursor.left, "x");
  const plans = past.marks.filter(mark => mark.plan && direction * (mark.x - now) > 0.5);
  const mark = direction > 0 ? plans[0] : plans.at(-1);
  if (mark) pointAt(mark.x);
}
const KEYS = {
  ArrowLeft: () => step(-1), ArrowRight: () => step(1), "+": () => change("in"), "=": () => change("in"), "-": () => change("out"),
  0: () => zoom(null), Home: () => zoom(null), "[": () => nextPlan(-1), "]": () => nextPlan(1), Escape: () => past.plots[0]?.setCursor({ left: -10, top: -10 }),
};
by("charts").addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const moves = { ArrowLeft: "earlier", ArrowRight: "later" };
  const act = event.shiftKey && moves[event.key] ? () => change(moves[event.key]) : KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
// What is read at the cursor is spoken; the latest values, which change by themselves, are not.
by("charts").addEventListener("focus", () => { by("readout").ariaLive = "polite"; });
by("charts").addEventListener("blur", () => { by("readout").ariaLive = "off"; });
by("history").addEventListener("click", event => {
  const button = event.target.closest("button");
  if (button?.dataset.range) zoom(null, Number(button.dataset.range));
  if (button?.dataset.zoom) change(button.dataset.zoom);
  if (button?.dataset.axis) {
    past[button.dataset.axis] = !past[button.dataset.axis];
    button.setAttribute("aria-pressed", String(past[button.dataset.axis]));
    overTime(present.samples, present.plans, present.events);
    zoom(null, past.last);
  }
});
new ResizeObserver(() => {
  const width = by("charts").clientWidth;
  for (const plot of past.plots) if (width && plot.width !== width) plot.setSize({ width, height: plot.height });
}).observe(by("charts"));
