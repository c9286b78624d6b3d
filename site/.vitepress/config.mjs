// Configuration of the site, which shows docs/. hack/site.sh sets environment variables for the
// release, the address of the site, and the repository.
import { createCssVariablesTheme } from 'shiki'
import { copyFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { defineConfig } from 'vitepress'
import { deadLinks } from './deadlinks.mjs'
import { fragment, links } from './markdown.mjs'
import { groups, menu } from './pages.mjs'
import { early, strict } from './policy.mjs'
import { searchRoles } from './search.mjs'

const setting = (name) => process.env[name] ?? (() => { throw new Error(`${name} is not set: the site is built by hack/site.sh`) })()

const version = setting('SITE_VERSION')
const base = `${setting('SITE_BASE')}${version}/`
const repository = setting('SITE_REPOSITORY')
const ref = setting('SITE_REF')
const checkout = setting('SITE_CHECKOUT')
const docs = new URL('../../docs/', import.meta.url).pathname

export default defineConfig({
  title: 'keyserver-operator',
  description: 'Declarative trust and key operations on Kubernetes',
  lang: 'en',
  srcDir: '../docs',
  outDir: './dist',
  base,
  head: [['link', { rel: 'icon', href: 'data:,' }]], // otherwise browsers request an icon
  rewrites: { 'README.md': 'index.md' },
  appearance: { disableTransition: false }, // disabling transitions needs a style element
  metaChunk: true, // no inline script
  contentProps: { class: 'content' }, // no style attribute
  themeConfig: {
    version,
    revision: setting('SITE_REVISION'),
    versions: `${setting('SITE_BASE')}versions.json`,
    nav: [...menu, { text: 'Source', link: `${repository}/tree/${ref}` }],
    sidebar: groups(docs),
    outline: [2, 3],
    search: { provider: 'local' },
  },
  markdown: {
    attrs: { disable: true },
    anchor: { slugify: fragment },
    headers: { slugify: fragment },
    toc: { slugify: fragment },
    theme: createCssVariablesTheme({ name: 'site', variablePrefix: '--code-', fontStyle: false }),
    codeTransformers: [classesForStyles()],
    config: links({ docs, checkout, repository, ref }),
  },
  vite: { plugins: [searchRoles] },
  transformHtml: strict(base),
  buildEnd({ outDir }) {
    copyFileSync(join(docs, 'openapi.json'), join(outDir, 'openapi.json'))
    for (const [name, text] of Object.entries(early)) writeFileSync(join(outDir, name), text)
    const dead = deadLinks(outDir, base)
    if (dead.length > 0) throw new Error(`${dead.length} dead links:\n${dead.join('\n')}`)
  },
})

// classesForStyles replaces style attributes by classes, which set the colours of tokens. The
// policy of a strict site rejects style attributes.
function classesForStyles() {
  return {
    name: 'classes-for-styles',
    pre(node) { delete node.properties.style },
    span(node) {
      const token = /--code-(token-[a-z-]+)/.exec(node.properties.style ?? '')
      delete node.properties.style
      if (token) this.addClassToHast(node, token[1])
    },
  }
}
