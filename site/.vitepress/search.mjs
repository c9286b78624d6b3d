// The ARIA roles of the VitePress search box describe a button with links in options. These
// replacements describe a dialog with a combobox whose options are the links. The build fails if
// another version of VitePress does not have an expected text.
const roles = [
  [/role="button"\s+:aria-owns="[^"]*"\s+aria-expanded="true"\s+aria-haspopup="listbox"/, 'role="dialog" aria-modal="true"'],
  [/aria-autocomplete="both"/, 'role="combobox" aria-haspopup="listbox" :aria-expanded="results?.length ? \'true\' : \'false\'" aria-autocomplete="list"'],
  [/:id="'localsearch-item-' \+ index"\s+:aria-selected="selectedIndex === index \? 'true' : 'false'"\s+role="option"/, 'role="presentation"'],
  [/<kbd :aria-label/g, '<kbd role="img" :aria-label'],
  [/:aria-label="\[\.\.\.p\.titles, p\.title\]\.join\(' > '\)"/, 'role="option" :id="\'localsearch-item-\' + index" :aria-selected="selectedIndex === index ? \'true\' : \'false\'"'],
]

export const searchRoles = {
  name: 'search-roles',
  enforce: 'pre',
  transform(code, id) {
    if (!id.endsWith('/VPLocalSearchBox.vue')) return
    for (const [from, to] of roles) {
      if (!from.test(code)) throw new Error(`the search box of VitePress has no ${from}`)
      code = code.replace(from, to)
    }
    return code
  },
}
