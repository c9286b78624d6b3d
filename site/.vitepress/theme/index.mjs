import { h } from 'vue'
import Theme from 'vitepress/theme-without-fonts'
import Made from './Made.vue'
import Versions from './Versions.vue'
import './style.css'

export default {
  extends: Theme,
  Layout: () => h(Theme.Layout, null, {
    'doc-footer-before': () => h(Made),
    'nav-bar-content-after': () => h(Versions, { id: 'version' }),
    'nav-screen-content-after': () => h(Versions, { id: 'version-screen' }),
  }),
}
