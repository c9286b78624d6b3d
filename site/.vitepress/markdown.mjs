// Makes Markdown work on the site as it does on a forge.
import { existsSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'

// fragment returns the fragment of a link to a heading, in the format of forges.
export const fragment = (title) => title.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')

// links changes each link to a file that is not a page of docs, so that it leads to the repository.
// The build fails if the file does not exist.
export function links({ docs, checkout, repository, ref }) {
  const elsewhere = (href, env) => {
    if (/^([a-z][a-z0-9+.-]*:|#|\/\/)/i.test(href)) return href
    const [path, hash] = href.split('#')
    const target = resolve(dirname(env.realPath ?? env.path), decodeURI(path))
    const inside = relative(docs, target)
    if (inside === 'README.md') return href.replace('README.md', 'index.md')
    if (!inside.startsWith('..') && (inside.endsWith('.md') || inside === 'openapi.json')) return href
    const name = relative(dirname(join(docs, '.')), target)
    const there = join(checkout, name)
    if (name.startsWith('..') || !existsSync(there)) throw new Error(`${env.relativePath}: ${href} leads to nothing in the repository`)
    const kind = statSync(there).isDirectory() ? 'tree' : 'blob'
    return `${repository}/${kind}/${ref}/${name}${hash ? `#${hash}` : ''}`
  }
  return (md) => {
    const { link_open: link, text, code_inline: code } = md.renderer.rules
    md.renderer.rules.link_open = (tokens, i, options, env, self) => {
      tokens[i].attrSet('href', elsewhere(tokens[i].attrGet('href'), env))
      return link(tokens, i, options, env, self)
    }
    // Escape "{{", because documents contain no templates.
    const plain = (rule) => (...args) => rule(...args).replaceAll('{{', '&#123;&#123;')
    md.renderer.rules.text = plain(text)
    md.renderer.rules.code_inline = plain(code)
    // The header cell of a column without a title becomes a td.
    md.core.ruler.push('unnamed', ({ tokens }) => {
      for (let i = 0; i + 2 < tokens.length; i++) {
        if (tokens[i].type === 'th_open' && !tokens[i + 1].content) tokens[i].tag = tokens[i + 2].tag = 'td'
      }
    })
    // Columns are aligned by the class of a cell, not by a style attribute.
    for (const cell of ['th_open', 'td_open']) {
      md.renderer.rules[cell] = (tokens, i, options, env, self) => {
        const style = tokens[i].attrGet('style')
        if (style) tokens[i].attrs = [['class', style.replace('text-align:', 'align-')]]
        return self.renderToken(tokens, i, options)
      }
    }
  }
}
