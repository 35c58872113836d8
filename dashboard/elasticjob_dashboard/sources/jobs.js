// The table of all jobs. Until a column sorts them, they have the server's order: jobs that need a look come first.
const COLUMNS = [
  ["Job", each => each.name], ["Phase", each => each.phase], ["Progress", each => each.totalSteps ? each.step / each.totalSteps : null],
  ["Rate", each => each.rate], ["Workers", each => each.workers ? parseInt(each.workers) : null], ["GPUs", each => each.gpus || null],
  ["Stalled", each => each.stalledSince], ["Plans", each => each.waiting.length || null], ["Age", each => -each.created], ["Changes"],
];
const sorting = { by: null, falling: false };
const PHASE = 1, AGES = 30000; // milliseconds
const rows = new Map();

function show(changed) {
  Object.assign(present, changed);
  if (!present.order) return;
  const kept = new Set([...present.order, "order", "more", "notes", "pools"]);
  for (const name of Object.keys(present)) if (!kept.has(name)) delete present[name];
  by("ask").hidden = true;
  by("main").hidden = false;
  draw();
}

function news() {
  by("news").className = problem ? "late" : "live";
  by("news").hidden = !by("ask").hidden; // without a token there are no news
  write(by("news"), problem ? "no news" : "live");
  by("problem").hidden = !problem;
  write(by("problem"), problem);
}

function draw() {
  const all = present.order.map(key => ({ key, ...present[key] })), wanted = words(by("filter").value);
  const has = (each, word) => `${each.key} ${each.createdBy} ${each.phase} ${each.stalledSince ? "stalled" : ""}`.toLowerCase().includes(word);
  const listed = all.filter(each => !wanted.length || wanted.some(word => has(each, word)));
  facts(all);
  const more = present.more ? `; ${present.more} more are not read, elasticjob dashboard -n shows those of a namespace` : "";
  write(by("counts"), all.length ? `${listed.length === all.length ? all.length : `${listed.length} of ${all.length}`} ${all.length === 1 ? "job" : "jobs"}${more}` : "no jobs");
  const notes = by("notes");
  notes.replaceChildren();
  for (const note of present.notes) put(notes, "li", note);
  pools(present.pools);
  const body = jobTable();
  keep(rows, sorted(listed, COLUMNS, sorting), "key", body, () => jobRow(body), fill);
}

function pools(all) {
  by("shared").hidden = !all.length;
  table("pools", ["Pool", "Used", "Waiting", "Last act"], all.map(each => ({
    cells: [each.name, each.used, each.waits, each.act && `${ago(each.actedAt)} ago: ${each.act}`] })));
}

// The texts of a filter; a job is shown if it has one of them.
const words = text => text.toLowerCase().split(",").map(each => each.trim()).filter(Boolean);

// Each count is a button that shows its jobs only, and again all of them.
const COUNTS = [["Running", "running, scaling"], ["Waiting", "pending, starting, retrying"], ["Stalled", "stalled", "bad"],
  ["Failed", "failed", "bad"], ["Suspended", "suspended"], ["Stopped", "stopped"], ["Succeeded", "succeeded"]];
let counted = "";
function facts(all) {
  const number = wanted => all.filter(each => wanted === "stalled" ? each.stalledSince : words(wanted).includes(each.phase.toLowerCase())).length;
  const counts = COUNTS.map(([name, wanted, color]) => [name, wanted, number(wanted), color]);
  const gpus = grouped(all.reduce((sum, each) => sum + each.gpus, 0)), present = JSON.stringify([counts, gpus, by("filter").value]);
  if (present === counted) return; // a button that is not made again keeps the focus
  counted = present;
  const focused = document.activeElement?.dataset?.filter, fact = into("facts");
  for (const [name, wanted, count, color] of counts) {
    const button = put(fact(name, undefined, count && color || ""), "button", count, "count");
    button.type = "button";
    button.dataset.filter = wanted;
    button.setAttribute("aria-pressed", String(by("filter").value === wanted));
    button.setAttribute("aria-label", `Show ${name}: ${count}`);
    if (focused === wanted) button.focus();
  }
  fact("GPUs requested", gpus);
}

// The filter is in the address, so that a reload, a bookmark or a colleague has it, too.
function filterBy(text) {
  by("filter").value = text;
  const address = new URL(location.href);
  if (text) address.searchParams.set("filter", text);
  else address.searchParams.delete("filter");
  window.history.replaceState(null, "", address);
  draw();
}

function jobTable() {
  const target = by("jobs");
  if (target.tBodies[0]) return target.tBodies[0];
  heads(target, COLUMNS, sorting, draw);
  return put(target, "tbody");
}

function jobRow(body) {
  const row = put(body, "tr");
  COLUMNS.forEach(([title, value], column) => {
    const cell = put(row, "td");
    if (column > PHASE && value) cell.dataset.label = title;
  });
  const [job, phase, , , , , , , , buttons] = row.cells;
  put(job, "a");
  put(job, "span", "", "space");
  put(phase, "span");
  put(phase, "span", "", "why");
  put(buttons, "div", undefined, "tools");
  return row;
}

function fill(row, each) {
  const [job, phase, done, rate, workers, gpus, stalled, plans, age, buttons] = row.cells;
  const path = `jobs/${encodeURIComponent(each.namespace)}/${encodeURIComponent(each.name)}/`;
  row.dataset.key = each.key;
  if (job.firstChild.getAttribute("href") !== path) job.firstChild.setAttribute("href", path);
  write(job.firstChild, each.name);
  write(job.lastChild, [each.namespace, each.createdBy].filter(Boolean).join(" · "));
  job.lastChild.title = each.createdBy && `created by ${each.createdBy}`;
  write(phase.firstChild, each.phase);
  mark(phase.firstChild, `phase ${each.phase}`);
  write(phase.lastChild, each.why);
  phase.lastChild.title = each.why;
  steps(done, each);
  write(rate, each.rate ? `${number(each.rate, 4)} / s` : "");
  write(workers, each.workers);
  write(gpus, each.gpus || "");
  write(stalled, each.stalledSince ? `for ${ago(each.stalledSince)}` : "");
  mark(stalled, each.stalledSince ? "bad" : "");
  write(plans, each.waiting.join("; "));
  mark(plans, "plans");
  write(age, ago(each.created));
  offer(buttons.firstChild, { ...each, path });
}

// The time since then in one unit, as kubectl prints it.
function ago(time) {
  if (!time) return "";
  const seconds = Math.max(Date.now() / 1000 - time, 0);
  const [name, length] = [["d", 86400], ["h", 3600], ["min", 60]].find(([, length]) => seconds >= 2 * length) || ["s", 1];
  return `${Math.floor(seconds / length)} ${name}`;
}

function steps(cell, each) {
  if (!cell.firstChild) {
    put(cell, "span");
    put(cell, "progress").max = 1;
    put(cell, "span", "", "eta");
  }
  const [text, bar, left] = cell.children, all = each.totalSteps;
  cell.dataset.label = each.step || all ? COLUMNS[2][0] : "";
  write(text, each.step || all ? `${grouped(each.step)}${all ? ` / ${grouped(all)}` : ""}` : "");
  write(left, each.etaSeconds ? `${span(each.etaSeconds)} to go` : "");
  bar.hidden = !all;
  if (all) bar.value = each.step / all;
  bar.setAttribute("aria-label", `Steps done of ${each.name}`);
}

by("jobs").addEventListener("click", event => {
  const row = event.target.closest("tbody tr");
  if (row && !event.target.closest("a, button") && !getSelection().toString()) location.assign(row.querySelector("a").href);
});
by("filter").addEventListener("input", () => filterBy(by("filter").value));
by("facts").addEventListener("click", event => {
  const wanted = event.target.dataset.filter;
  if (wanted) filterBy(by("filter").value === wanted ? "" : wanted);
});
by("filter").value = new URLSearchParams(location.search).get("filter") || "";
setInterval(() => { if (present.order && !document.hidden) draw(); }, AGES);
follow();
