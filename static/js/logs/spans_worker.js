// Runs a regular expression apart from the page: one that takes for ever costs a worker, not the window.

const MOST_SPANS = 200;

onmessage = ({ data: { pattern, texts } }) => {
  let expression;
  try { expression = new RegExp(pattern, "giu"); } catch {
    try { expression = new RegExp(pattern, "gi"); } catch { postMessage({ pattern, spans: null }); return; }
  }
  const spans = texts.map(([number, text]) => {
    const found = [];
    for (const match of text.matchAll(expression)) {
      if (match[0]) found.push([match.index, match.index + match[0].length]);
      if (found.length >= MOST_SPANS) break;
    }
    return [number, found];
  });
  postMessage({ pattern, spans });
};
