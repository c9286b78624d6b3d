# Functions of the package bash-completion that the script below calls, for shells without that package.
if ! declare -F _get_comp_words_by_ref >/dev/null; then
    # Sets words, cword, cur and prev. Bash also splits a line at = and :, and this function joins those parts again.
    _get_comp_words_by_ref()
    {
        local i line=$COMP_LINE
        words=()
        for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
            if ((i == 0)) || [[ $line == [[:space:]]* ]]; then
                words+=("${COMP_WORDS[i]}")
                line=${line#"${line%%[![:space:]]*}"}
            else
                words[${#words[@]} - 1]+=${COMP_WORDS[i]}
            fi
            line=${line#"${COMP_WORDS[i]}"}
            if ((i == COMP_CWORD)); then
                cword=$((${#words[@]} - 1))
            fi
        done
        cur=${words[cword]}
        prev=
        if ((cword > 0)); then
            prev=${words[cword - 1]}
        fi
    }
fi
if ! declare -F _filedir >/dev/null; then
    _filedir()
    {
        local file kind=-f
        if [[ ${1-} == -d ]]; then
            kind=-d
        fi
        while IFS= read -r file; do
            COMPREPLY+=("$file")
        done < <(compgen "$kind" -- "$cur")
    }
fi

