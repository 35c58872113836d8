// One chart of a value over time, by uPlot. Titles are our own elements, because uPlot inserts only ours.
const FONT = "11px system-ui, sans-serif";
const axisText = value => value === null ? "" : Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3)
  ? value.toExponential(1).replace(".0e", "e") : String(Number(value.toPrecision(6)));

function axis(more) {
  return { stroke: color("dim"), font: FONT, grid: { stroke: color("grid"), width: 1 }, ticks: { show: false }, ...more };
}
const BOUNDS = {
  fromZero: (_, least, most) => [0, most > 0 ? 1.12 * most : 1],
  members: (_, least, most) => [0, Math.max(1, Math.ceil((most || 0) * 1.15))],
  log: (_, least, most) => least > 0 ? [least / 1.2, most * 1.2] : [0.1, 1],
  around: (_, least, most) => {
    if (least === null || most === null) return [0, 1];
    const rest = (most - least) * 0.08 || Math.abs(most) * 0.1 || 1;
    return [least - rest, most + rest];
  },
};

// options: {height, bounds, stepped, area, log, time: whether its axis is of time, not of steps; both: whether another job's values follow; last: whether it shows that axis; range, marks, onCursor, onSelect}
function timeChart(parent, width, data, options) {
  const whole = BOUNDS.members === options.bounds;
  const y = axis({ size: 52, gap: 4, space: 28, values: (_, splits) => options.strip ? [] : splits.map(axisText) });
  if (options.strip) y.grid = { show: false };
  if (whole) y.incrs = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
  return new uPlot({
    width, height: options.height + (options.last ? 36 : 0),
    padding: [6, 8, options.last ? 0 : 4, 0],
    legend: { show: false },
    cursor: {
      y: false, points: { size: 6 },
      drag: { x: true, y: false, setScale: false },
      sync: { key: "time", scales: ["x", null], filters: { pub: type => type === "mousemove" || type === "mouseleave" } },
      bind: { dblclick: () => () => { options.onSelect(null); return null; } },
    },
    scales: { x: { time: options.time, range: options.range }, y: { range: options.bounds, distr: options.log ? 3 : 1 } },
    axes: [
      axis({ show: Boolean(options.last), size: 36, space: 70,
        values: !options.time ? (_, splits) => splits.map(axisText) : [
          [31536000, "{YYYY}", null, null, null, null, null, null, 1],
          [86400, "{MMM} {D}", null, null, null, null, null, null, 1],
          [3600, "{HH}:{mm}", "\n{MMM} {D}", null, null, null, null, null, 0],
          [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
          [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
          [0.001, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
        ] }),
      y,
    ],
    series: [{}, ...[{
      stroke: color(options.stroke || "main"), width: 1.5, points: { show: false }, gaps: plot => options.pauses().map(
        each => [each.from, each.to].map(({ x }) => Math.round(plot.valToPos(x, "x", true)))),
      fill: options.area ? color("fill") : undefined,
    }, ...options.both ? [{ stroke: color("text"), width: 1.5, dash: [5, 4], points: { show: false } }] : []].map(each => (
      { ...each, paths: options.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined }))],
    hooks: {
      draw: [plot => options.strip ? drawStrip(plot, options.intervals()) : drawMarks(plot, options.marks())],
      setCursor: [plot => options.onCursor(plot)],
      setSelect: [plot => {
        const { left, width: wide } = plot.select;
        if (wide > 5) options.onSelect([plot.posToVal(left, "x"), plot.posToVal(left + wide, "x")]);
        if (wide) plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      }],
    },
  }, data, parent);
}

// What each interval went into, one part above the other.
function drawStrip(plot, intervals) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const { from, to, parts } of intervals) {
    const [left, right] = [from, to].map(({ x }) => Math.round(plot.valToPos(x, "x", true)));
    let bottom = bbox.top + bbox.height;
    for (const [share, name] of parts) {
      ctx.fillStyle = color(name);
      ctx.fillRect(left, bottom - share * bbox.height, right - left, share * bbox.height);
      bottom -= share * bbox.height;
    }
  }
  ctx.restore();
}

// Plans are lines through the chart, problems short lines at its lower edge.
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot, ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark.x, "x", true));
    if (!(x >= bbox.left - 4 && x <= bbox.left + bbox.width + 4)) continue;
    const bottom = bbox.top + bbox.height, top = mark.plan ? bbox.top : bottom - 9 * ratio;
    ctx.strokeStyle = ctx.fillStyle = color(mark.bad ? "bad" : mark.pale ? "rest" : "second");
    ctx.lineWidth = (mark.plan ? 1 : 2) * ratio;
    ctx.setLineDash(mark.plan ? [4 * ratio, 3 * ratio] : []);
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, bottom);
    ctx.stroke();
    if (!mark.plan) continue;
    ctx.beginPath();
    ctx.moveTo(x - 4 * ratio, top);
    ctx.lineTo(x + 4 * ratio, top);
    ctx.lineTo(x, top + 6 * ratio);
    ctx.fill();
  }
  ctx.restore();
}
