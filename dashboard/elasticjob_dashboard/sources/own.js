// The changes that the user may make, on a job's page that is served with the user's own rights. A master's page has none.
const OFFERS = 5000; // milliseconds
async function showOffers() {
  if (!token || document.hidden) return;
  try {
    const answer = await fetch("offers", { headers: authorized(), cache: "no-store" });
    if (answer.ok) offer(by("changes"), { ...await answer.json(), path: "" });
  } catch { /* the page already says that there are no news */ }
}
setInterval(showOffers, OFFERS);
showOffers();
