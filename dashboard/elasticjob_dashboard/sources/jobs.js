// The table of all jobs. The server orders it: jobs that need a look come first.
const TITLES = ["Job", "Phase", "Progress", "Rate", "Workers", "GPUs", "Stalled", "Plans", "Age", ""];
const PHASE = 1, AGES = 30000; // milliseconds
const rows = new Map();

function show(changed) {
  Object.assign(present, changed);
  if (!present.order) return;
  const kept = new Set([...present.order, "order", "more", "notes"]);
  for (const name of Object.keys(present)) if (!kept.has(name)) delete present[name];
  by("ask").hidden = true;
  by("main").hidden = false;
  draw();
}

function news() {
  by("news").className = problem ? "late" : "live";
  write(by("news"), problem ? "no news" : "live");
  by("problem").hidden = !problem;
  write(by("problem"), problem);
}

function draw() {
  const all = present.order.map(key => ({ key, ...present[key] })), wanted = by("filter").value.trim().toLowerCase();
  const listed = all.filter(each => !wanted || `${each.key} ${each.phase} ${each.stalledSince ? "stalled" : ""}`.toLowerCase().includes(wanted));
  facts(all);
  const more = present.more ? `; ${present.more} more are not read, elasticjob dashboard -n shows those of a namespace` : "";
  write(by("counts"), all.length ? `${listed.length === all.length ? all.length : `${listed.length} of ${all.length}`} jobs${more}` : "no jobs");
  const notes = by("notes");
  notes.replaceChildren();
  for (const note of present.notes) put(notes, "li", note);
  const body = jobTable();
  keep(rows, listed, "key", body, () => jobRow(body), fill);
}

function facts(all) {
  const fact = into("facts"), count = (...phases) => all.filter(each => phases.includes(each.phase)).length;
  const stalled = all.filter(each => each.stalledSince).length, failed = count("Failed");
  fact("Running", count("Running", "Scaling"));
  fact("Waiting", count("Pending", "Starting", "Retrying"));
  fact("Stalled", stalled, stalled ? "bad" : "");
  fact("Failed", failed, failed ? "bad" : "");
  fact("Suspended", count("Suspended"));
  fact("Stopped", count("Stopped"));
  fact("Succeeded", count("Succeeded"));
  fact("GPUs requested", grouped(all.reduce((sum, each) => sum + each.gpus, 0)));
}

function jobTable() {
  const target = by("jobs");
  if (target.tBodies[0]) return target.tBodies[0];
  const head = put(put(target, "thead"), "tr");
  for (const title of TITLES) put(head, "th", title).scope = "col";
  return put(target, "tbody");
}

function jobRow(body) {
  const row = put(body, "tr");
  TITLES.forEach((title, column) => {
    const cell = put(row, "td");
    if (column > PHASE && title) cell.dataset.label = title;
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
  write(job.lastChild, each.namespace);
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
  offer(buttons.firstChild, each);
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
  cell.dataset.label = each.step || all ? TITLES[2] : "";
  write(text, each.step || all ? `${grouped(each.step)}${all ? ` / ${grouped(all)}` : ""}` : "");
  write(left, each.etaSeconds ? `${span(each.etaSeconds)} to go` : "");
  bar.hidden = !all;
  if (all) bar.value = each.step / all;
  bar.setAttribute("aria-label", `Steps done of ${each.name}`);
}

function offer(tools, each) {
  if (tools.dataset.offers === each.offers.join()) return;
  tools.dataset.offers = each.offers.join();
  tools.replaceChildren();
  for (const what of each.offers) {
    const button = put(tools, "button", CHANGES[what][0]);
    button.type = "button";
    button.dataset.change = what;
    button.setAttribute("aria-label", `${CHANGES[what][0]} ${each.namespace}/${each.name}`);
  }
}

by("jobs").addEventListener("click", event => {
  const row = event.target.closest("tbody tr"), what = event.target.dataset.change;
  if (!row) return;
  if (what) askChange(what, present[row.dataset.key]);
  else if (!event.target.closest("a") && !getSelection().toString()) location.assign(row.querySelector("a").href);
});
by("filter").addEventListener("input", draw);
setInterval(() => { if (present.order && !document.hidden) draw(); }, AGES);
follow();
