// Another job of the namespace, laid over the charts as dashed lines: by step, or by the time since both have begun.
const compared = { name: "", samples: [], began: 0 };
by("other").hidden = !readsLogs;

// Its samples, each with its place on the present axis; `own` are the job's.
function laidOver(own) {
  const { samples, began } = compared, shift = (present.report?.began || own[0]?.time || 0) - began;
  return (past.steps ? ofSteps(samples) : samples).map(each => ({ ...each, x: past.steps ? each.step : each.time + shift }));
}

async function askOther(name) {
  const answer = await fetch(`other?job=${encodeURIComponent(name)}`, { headers: authorized(), cache: "no-store" });
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 500));
  return answer.json();
}

async function compareWith(name) {
  let said = "";
  Object.assign(compared, { name: "", samples: [], began: 0 });
  try {
    if (name) {
      const found = await askOther(name);
      const samples = (found.samples || []).filter(each => drawable(each.time) !== null).sort((one, other) => one.time - other.time);
      Object.assign(compared, { name, samples, began: found.report?.began || samples[0]?.time || 0 });
      said = samples.length ? `Dashed: ${name}, from the begin of both, read at ${clock(Date.now() / 1000)}` : `${name} has no samples`;
    }
  } catch (error) { said = error.message; }
  if (by("other").value.trim() !== name) return;
  write(by("compared"), said);
  overTime(present.samples, present.plans, present.events);
}

by("other").addEventListener("change", () => compareWith(by("other").value.trim()));
by("other").addEventListener("focus", async () => {
  try {
    const names = (await askOther("")).names;
    by("others").replaceChildren(...names.filter(name => name !== present.job).map(name => new Option("", name)));
  } catch { /* a name can be typed without the list */ }
});
