// Removes the parts of each VitePress page that a policy without 'unsafe-inline' rejects. Two
// inline scripts become files that run equally early. The style attribute of a menu is deleted;
// the page sets it again.
export const early = {}

export const strict = (base) => (html) =>
  html
    .replace(/<script id="([a-z-]+)">([^]*?)<\/script>/g, (_, id, text) => {
      early[`${id}.js`] = `${text}\n`
      return `<script id="${id}" src="${base}${id}.js"></script>`
    })
    .replaceAll(' style="--vp-vh:0px;"', '')
