/* The search finds pages of the guide first, then the API, then all else. */
var Scorer = {
  score: ([page, , , , score]) => {
    if (page.startsWith("docs/api/")) return score - 10;
    return page.startsWith("docs/gallery/") || !page.startsWith("docs/")
      ? score - 20
      : score + 30;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
