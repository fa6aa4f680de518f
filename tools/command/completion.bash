# Completion of verbs and options, for zsh too; a test compares it with the parser.
if [ -n "${ZSH_VERSION:-}" ]; then autoload -U +X bashcompinit && bashcompinit; fi
_inference() {
  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]:-} listed=
  if ((COMP_CWORD == 1)); then verb=; fi
  if [[ $verb == key ]] && ((COMP_CWORD > 2)); then verb="key ${COMP_WORDS[2]}"; fi
  case $verb in
    '') listed='key init check plan render fit adopt apply status verify rollout rollback drain undrain bench usage remove logs chat lab completion -h --help' ;;
    'key') listed='add list end -h --help' ;;
    'init') listed='-h --help --no-detect --accelerators -e --extra-vars -v --verbose --hosts --login --model --runtime --gateway --teams' ;;
    'check') listed='-h --help -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json -D --diff' ;;
    'plan') listed='-h --help --instance --all -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json' ;;
    'render') listed='-h --help --directory --commands -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json -C --check -D --diff' ;;
    'fit') listed='-h --help --models --chips --release -e --extra-vars -v --verbose --json' ;;
    'adopt') listed='-h --help --file --name --model --chips --release --service -e --extra-vars -v --verbose --json' ;;
    'apply') listed='-h --help -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json -C --check -D --diff' ;;
    'status') listed='-h --help --versions --faults --starts --page -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json' ;;
    'verify') listed='-h --help --expect -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json' ;;
    'rollout') listed='-h --help -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json -C --check -D --diff' ;;
    'rollback') listed='-h --help --rollout -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json -C --check -D --diff' ;;
    'drain') listed='-h --help --reason --timeout --instance --force -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json' ;;
    'undrain') listed='-h --help --timeout --instance --force -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json' ;;
    'bench') listed='-h --help --instance --workloads --concurrency -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json' ;;
    'usage') listed='-h --help --since --until --format --file -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json' ;;
    'remove') listed='-h --help --instance --model --environment --image --everything -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json -C --check -D --diff' ;;
    'logs') listed='-h --help -n --lines --since -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json' ;;
    'chat') listed='-h --help -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json' ;;
    'lab') listed='up down -h --help' ;;
    'completion') listed='bash zsh -h --help' ;;
    'key add') listed='-h --help --team --expires --tokens-per-day --rate -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json -C --check -D --diff' ;;
    'key list') listed='-h --help -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json' ;;
    'key end') listed='-h --help -l --limit -i --inventory -u --user -K --ask-become-pass -J --ask-vault-pass -e --extra-vars -v --verbose --json -C --check -D --diff' ;;
  esac
  COMPREPLY=($(compgen -W "$listed" -- "$word"))
}
complete -o default -F _inference inference
