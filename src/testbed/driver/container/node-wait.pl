#!/usr/bin/perl
# Runs one boot of a node and writes down how it ended. A shell cannot tell a process that was killed from an init
# that ends with 128 + N; the difference is who is to blame.
# Usage: node-wait.pl EVENTS-FILE SUPERVISOR-PID COMMAND...
use strict;
use warnings;

my ($events, $supervisor, @command) = @ARGV;
my $ended = system { $command[0] } @command;
my $signal = $ended == -1 ? 0 : $ended & 127;
my $status = $ended == -1 ? 72 : $ended >> 8;
open my $out, '>>', $events or exit 73;
printf $out "%d %d %s %d\n", time, $supervisor, $signal ? ('signal', $signal) : ('exit', $status);
close $out;
print "infrabed: the node ended with ", $signal ? "signal $signal" : "status $status", "\n";
exit($signal ? 128 + $signal : $status);
