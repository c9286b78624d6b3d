// Checks the built pages: each link within the site must lead to a file, and its fragment to an
// element of that page.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'

export function deadLinks(directory, base) {
  const files = readdirSync(directory, { recursive: true }).filter((name) => name.endsWith('.html')).map((name) => join(directory, name))
  const texts = new Map(files.map((file) => [file, readFileSync(file, 'utf8')]))
  const ids = new Map([...texts].map(([file, text]) => [file, new Set([...text.matchAll(/\sid="([^"]*)"/g)].map((m) => m[1]))]))
  const dead = []
  for (const [file, text] of texts) {
    const here = `http://site${base}${relative(directory, file)}`
    for (const [, href] of text.matchAll(/<a\s[^>]*?href="([^"]*)"/g)) {
      const to = new URL(href.replaceAll('&amp;', '&'), here)
      if (to.host !== 'site') continue
      const say = (why) => dead.push(`${relative(directory, file)}: ${href}: ${why}`)
      if (!to.pathname.startsWith(base)) { say('is not of this site'); continue }
      let target = join(directory, decodeURIComponent(to.pathname.slice(base.length)))
      if (to.pathname.endsWith('/')) target = join(target, 'index.html')
      if (!existsSync(target)) say('there is no such page')
      else if (to.hash && ids.has(target) && !ids.get(target).has(decodeURIComponent(to.hash.slice(1)))) say(`there is no such fragment there`)
    }
  }
  return dead
}
