// The sidebar lists the files in docs, so that no list must be maintained. Its parts are the four
// kinds of documents. The first word of a page says its kind.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

// parts maps the kind of a page to the part of the documents, which is a heading of docs/README.md.
const parts = { Tutorial: 'Tutorials', 'How-to': 'How-to guides', Reference: 'Reference', Explanation: 'Explanation' }

const page = (docs, directory, name) => {
  const file = join(docs, directory, name)
  const heading = /^# (.+)\n+(.*)/m.exec(readFileSync(file, 'utf8'))
  if (!heading) throw new Error(`${file} has no heading of the first level`)
  const kind = /^(Tutorial|How-to|Reference|Explanation)\b/.exec(heading[2])?.[1]
  if (!kind && directory !== 'adr/') throw new Error(`${file} does not begin with its kind: Tutorial, How-to, Reference or Explanation`)
  return { kind, item: { text: heading[1].replaceAll('`', ''), link: `/${directory}${name.replace(/\.md$/, '')}` } }
}

const pages = (docs, directory) =>
  (existsSync(join(docs, directory)) ? readdirSync(join(docs, directory)) : [])
    .filter((name) => name.endsWith('.md') && name !== 'README.md')
    .map((name) => page(docs, directory, name))

const byText = (a, b) => a.text.localeCompare(b.text, 'en', { numeric: true })

export const groups = (docs) => {
  const all = ['', 'start/', 'guides/'].flatMap((directory) => pages(docs, directory))
  const of = (kind) => all.filter((p) => p.kind === kind && p.item.link !== '/glossary').map((p) => p.item).sort(byText)
  const decisions = { text: 'Decisions', items: pages(docs, 'adr/').map((p) => p.item).sort(byText) }
  return [
    { text: 'Documents', items: [{ text: 'Overview', link: '/' }, { text: 'Glossary', link: '/glossary' }] },
    ...Object.keys(parts).map((kind) => ({ text: parts[kind], items: kind === 'Explanation' ? [...of(kind), decisions] : of(kind) })),
  ]
}

// menu leads to the parts and to the glossary.
export const menu = [
  ...Object.values(parts).map((part) => ({ text: part, link: `/#${part.toLowerCase().replaceAll(' ', '-')}` })),
  { text: 'Glossary', link: '/glossary' },
]
