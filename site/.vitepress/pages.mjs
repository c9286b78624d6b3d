// The sidebar lists the files in docs, so that no list must be maintained.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const title = (file) => {
  const heading = /^# (.+)$/m.exec(readFileSync(file, 'utf8'))
  if (!heading) throw new Error(`${file} has no heading of the first level`)
  return heading[1].replaceAll('`', '')
}

const pages = (docs, directory) =>
  readdirSync(join(docs, directory))
    .filter((name) => name.endsWith('.md') && name !== 'README.md')
    .map((name) => ({ text: title(join(docs, directory, name)), link: `/${directory}${name.replace(/\.md$/, '')}` }))

const byText = (a, b) => a.text.localeCompare(b.text, 'en', { numeric: true })

export const groups = (docs) => [
  { text: 'Start', items: [{ text: 'Who reads what', link: '/' }, ...pages(docs, 'start/').sort(byText)] },
  { text: 'Documents', items: pages(docs, '').sort(byText) },
  { text: 'Decisions', items: pages(docs, 'adr/').sort(byText) },
]
