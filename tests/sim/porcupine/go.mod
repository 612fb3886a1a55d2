// A version that Debian 12's Go 1.19 builds.
module quafka/porcupine

go 1.19

require github.com/anishathalye/porcupine v1.3.1
