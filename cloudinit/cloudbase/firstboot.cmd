rem cmd
@echo off
rem First boot of a Windows node, made by Cluster API Provider Windows. It finds the node agent, checks it and starts it.
rem The block behind the last command is the node's configuration; the agent reads it from this file.
setlocal EnableExtensions DisableDelayedExpansion
set "source=<source>"
set "url=<url>"
set "sha256=<sha256>"

if "%source%"=="Media" goto media
if "%source%"=="URL" goto download

rem The image. A 32-bit cloudbase-init sees the 64-bit folder only under the second name.
set "agent=%ProgramFiles%\capw\capw-node.exe"
if defined ProgramW6432 set "agent=%ProgramW6432%\capw\capw-node.exe"
if exist "%agent%" goto run
if "%source%"=="Image" goto missing

:media
set "agent="
for %%d in (D E F G H I J K L M N O P Q R S T U V W X Y Z) do if not defined agent if exist "%%d:\capw-node.exe" set "agent=%%d:\capw-node.exe"
if defined agent goto run
if "%source%"=="Media" goto missing

:download
if not defined url goto missing
rem Only SYSTEM and Administrators may put a file beside the agent.
set "folder=%ProgramData%\capw"
set "agent=%folder%\capw-node.exe"
if not exist "%folder%\" mkdir "%folder%"
"%SystemRoot%\System32\icacls.exe" "%folder%" /inheritance:r /grant:r "*S-1-5-18:(OI)(CI)F" "*S-1-5-32-544:(OI)(CI)F" /q >nul
if not "%errorlevel%"=="0" goto nofolder
set "tries=0"

rem A revocation list that cannot be reached must not stop a download; what counts is the SHA-256.
:try
call :verify
if defined verified goto run
if "%tries%"=="30" goto unreachable
set /a tries+=1 >nul
echo capw: downloading %url% (try %tries% of 30)
"%SystemRoot%\System32\curl.exe" --fail --location --silent --show-error --ssl-no-revoke --connect-timeout 20 --max-time 900 --retry 3 --retry-delay 5 --output "%agent%" "%url%"
if "%errorlevel%"=="0" goto downloaded
rem 22 is an answer of the server that curl does not expect to change. Anything else may be a network that is not up yet.
if "%errorlevel%"=="22" goto unreachable
"%SystemRoot%\System32\ping.exe" -n 11 127.0.0.1 >nul
goto try

:downloaded
call :verify
if defined verified goto run
del "%agent%"
echo capw: FAILED: the file at %url% does not have the SHA-256 %sha256%, so it is not started
exit /b 73

:verify
rem certutil prints the hash on a line of its own, in every language.
set "verified="
if exist "%agent%" for /f "delims=" %%h in ('%SystemRoot%\System32\certutil.exe -hashfile "%agent%" SHA256') do if /i "%%h"=="%sha256%" set "verified=yes"
exit /b 0

:missing
echo capw: FAILED: found no node agent capw-node.exe, looked with agent source %source%
exit /b 70

:nofolder
echo capw: FAILED: cannot make the folder %folder% for SYSTEM and Administrators only
exit /b 71

:unreachable
echo capw: FAILED: cannot download the node agent from %url%
exit /b 72

:run
set "runs=0"

rem The agent installs itself as a service and ends. cloudbase-init runs this script only once, so it is the last chance to try again.
:again
set /a runs+=1 >nul
echo capw: starting %agent% (run %runs% of 3)
"%agent%" bootstrap --user-data "%~f0"
set "code=%errorlevel%"
if "%code%"=="0" exit /b 0
if "%runs%"=="3" goto failed
"%SystemRoot%\System32\ping.exe" -n 11 127.0.0.1 >nul
goto again

:failed
echo capw: FAILED: the node agent ended with exit code %code%
exit /b %code%
