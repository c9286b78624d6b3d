// What VitePress writes into each page and a policy without 'unsafe-inline' refuses: two
// scripts, which become files that run as early, and the style attribute of a menu, which
// the page sets again by itself.
export const early = {}

export const strict = (base) => (html) =>
  html
    .replace(/<script id="([a-z-]+)">([^]*?)<\/script>/g, (_, id, text) => {
      early[`${id}.js`] = `${text}\n`
      return `<script id="${id}" src="${base}${id}.js"></script>`
    })
    .replaceAll(' style="--vp-vh:0px;"', '')
